"""The memory of one server: how full it is, and its eviction policy.

The whole log is in memory. At a mark below the server's own limit produces are rejected with a retriable error, so that
commits, groups and leases can still be written.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from headrace.store.lasting import LastingInRounds
from headrace.store.redis.errors import RedisError
from headrace.store.redis.link import RedisLink, parse_info

log = logging.getLogger(__name__)

NO_EVICTION = "noeviction"
"""The one policy under which Redis refuses writes when it is full, rather than give keys up."""


class Room(NamedTuple):
    """Bytes of a server's memory."""

    total_bytes: int
    free_bytes: int


class CopyRoom(NamedTuple):
    """Bytes that a copy may take."""

    below_mark_bytes: int
    """Up to the mark at which produces are refused."""
    free_bytes: int


class Memory:
    """A server's memory use, checked periodically."""

    def __init__(self, link: RedisLink, high_mark_percent: int, *, may_evict: bool) -> None:
        self.is_full = False
        self.percent = 0
        self.used_bytes = self.limit_bytes = 0
        self._link = link
        self._high_mark_percent = high_mark_percent
        self._may_evict = may_evict
        self._policy = NO_EVICTION
        self.appends = LastingInRounds(log, "redis rejects appends", "redis accepts appends again")

    async def look(self) -> str:
        """Learns how full the server is; gives its policy for when it is."""
        facts = parse_info(await self._link.call("INFO", "memory"))
        limit, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
        self.used_bytes, self.limit_bytes = used, limit
        self.percent = used * 100 // limit if limit else 0
        mark = limit * self._high_mark_percent // 100
        self._set_full(bool(limit) and used >= mark, f"{used >> 20} MiB used of {limit >> 20} MiB")
        return facts.get("maxmemory_policy", NO_EVICTION)

    async def room(self) -> Room | None:
        """How much it holds; None if there is no limit."""
        facts = parse_info(await self._link.call("INFO", "memory"))
        limit = int(facts.get("maxmemory", 0))
        return Room(limit, max(limit - int(facts["used_memory"]), 0)) if limit else None

    async def room_for_copy(self) -> CopyRoom | None:
        """How much may be written beside produces; None if there is no limit."""
        if (room := await self.room()) is None:
            return None
        used = room.total_bytes - room.free_bytes
        return CopyRoom(max(room.total_bytes * self._high_mark_percent // 100 - used, 0), room.free_bytes)

    def start_with(self, policy: str) -> None:
        """The policy that the server had at the start, which was checked."""
        self._policy = policy

    def note_policy(self, policy: str) -> None:
        """Warns once when the server's eviction policy is changed."""
        if policy == self._policy:
            return
        self._policy = policy
        if policy == NO_EVICTION:
            log.info("redis no longer evicts keys")
        elif not self._may_evict:
            log.error(
                "redis now evicts keys when it is full, and records with them: CONFIG SET maxmemory-policy noeviction",
                extra={"policy": policy},
            )

    def note_trouble(self, error: RedisError) -> None:
        """Learns from a refusal before the next look does."""
        if error.kind == "OOM":
            self._set_full(True, "Redis rejects writes")
        else:
            self.appends.met(why=str(error))

    def _set_full(self, full: bool, why: str) -> None:
        if full and not self.is_full:
            log.error(
                "the store is nearly full: produces are rejected until records are deleted or maxmemory is raised",
                extra={"why": why},
            )
        elif self.is_full and not full:
            log.warning("the store has room again", extra={"why": why})
        self.is_full = full
