"""Small Lua scripts: writes that depend on the current state.

Never around the record bytes of the format `log`, whose cost it would double. The scripts of the format `stream` are in
`stream/scripts.py`, those of shared hashes in `cluster/shared_hash_scripts.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha1
from typing import Any, Protocol

from headrace.store.cluster.nodes.lease_scripts import LEASE_SOURCES
from headrace.store.cluster.owned.scripts import OWNED_SOURCES
from headrace.store.cluster.owned.transaction_scripts import TRANSACTION_SOURCES
from headrace.store.cluster.shared_hash_scripts import SHARED_HASH_SOURCES
from headrace.store.log.compacting.scripts import COMPACTING_SOURCES
from headrace.store.redis.errors import RedisError, StoreAway
from headrace.store.redis.link import Argument
from headrace.store.redis.lua import BELOW
from headrace.store.stream.scripts import STREAM_SOURCES

_OF_ROOMS = (
    STREAM_SOURCES | COMPACTING_SOURCES | LEASE_SOURCES | OWNED_SOURCES | SHARED_HASH_SOURCES | TRANSACTION_SOURCES
)

SOURCES = _OF_ROOMS | {
    # An empty stream comes into being by a group alone. What is there already stays as it is; a log that has to be
    # made again starts behind all that it gave out, and is marked until all is there that can be restored.
    "make_partition": BELOW
    + """
        if redis.call('EXISTS', KEYS[1]) == 0 and ARGV[1] ~= '0' then
            local floor = redis.call('HGET', KEYS[3], 'floor') or '0'
            if below(floor, ARGV[1]) then redis.call('HSET', KEYS[3], 'floor', ARGV[1]) end
            redis.call('HSET', KEYS[3], 'remaking', 1)
        end
        for at = 1, 2 do
            if redis.call('EXISTS', KEYS[at]) == 0 then
                redis.call('XGROUP', 'CREATE', KEYS[at], 'headrace:making', '$', 'MKSTREAM')
                redis.call('XGROUP', 'DESTROY', KEYS[at], 'headrace:making')
            end
        end
        redis.call('HSETNX', KEYS[3], 'start', 0)
        redis.call('HSETNX', KEYS[3], 'format', 'log')
        redis.call('HSETNX', KEYS[3], 'server', ARGV[2])
        return 1
    """,
    # A value that only rises, and only while the partition is there (a late write must not bring it back).
    "save_start": BELOW
    + """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local known = redis.call('HGET', KEYS[1], 'start')
        if known and not below(known, ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'start', ARGV[1])
        return 1
    """,
    "save_local_start": BELOW
    + """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local known = redis.call('HGET', KEYS[1], 'local')
        if known and not below(known, ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'local', ARGV[1])
        return 1
    """,
    "save_copied": BELOW
    + """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local known = redis.call('HGET', KEYS[1], 'copied')
        if known and not below(known, ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'copied', ARGV[1])
        return 1
    """,
    # Who writes to a partition, and on which server: only over what the writer has read. Where the log ended when it
    # was left holds only until somebody takes it up again.
    "take_up": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        if (redis.call('HGET', KEYS[1], 'server') or '') ~= ARGV[1] then return 0 end
        redis.call('HDEL', KEYS[1], 'left')
        redis.call('HSET', KEYS[1], 'server', ARGV[2])
        return 1
    """,
    "leave": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        if redis.call('HGET', KEYS[1], 'server') ~= ARGV[1] then return 0 end
        redis.call('HSET', KEYS[1], 'left', ARGV[2])
        return 1
    """,
    # The same for a partition that its maker never opened: somebody may have written to it all the same.
    "leave_unused": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        if redis.call('HGET', KEYS[1], 'server') ~= ARGV[1] then return 0 end
        if redis.call('XLEN', KEYS[3]) > 0 then return 0 end
        redis.call('HSET', KEYS[1], 'left', 0)
        return 1
    """,
    "save_trouble": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        if ARGV[1] == '' then redis.call('HDEL', KEYS[1], 'trouble')
        else redis.call('HSET', KEYS[1], 'trouble', ARGV[1]) end
        return 1
    """,
    # What was lost, and the epochs that say so: only over what the writer has read, and while the partition is there.
    "save_losses": """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        local known = redis.call('HMGET', KEYS[1], 'floor', 'epochs', 'gaps', 'replaced')
        for at = 1, 4 do
            if (known[at] or '') ~= ARGV[at] then return 0 end
        end
        redis.call('HSET', KEYS[1], 'floor', ARGV[5], 'epochs', ARGV[6], 'gaps', ARGV[7])
        if ARGV[8] ~= '[]' then redis.call('HSET', KEYS[1], 'replaced', ARGV[8]) end
        if ARGV[9] ~= '' then redis.call('HSET', KEYS[1], 'margin', ARGV[9]) end
        return 1
    """,
    # A snapshot never replaces a newer one. What it no longer covers of aborted transactions is stored with it.
    "save_producers": BELOW
    + """
        if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
        for at = 3, #ARGV, 2 do redis.pcall('XADD', KEYS[3], ARGV[at] .. '-1', 't', ARGV[at + 1]) end
        local known = redis.call('HGET', KEYS[1], 'offset')
        if known and below(ARGV[1], known) then return 0 end
        redis.call('HSET', KEYS[1], 'offset', ARGV[1], 'state', ARGV[2])
        return 1
    """,
    # A slug whose group is gone goes to the next one that asks.
    "replace_slug": """
        if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
        return 1
    """,
    "free_slug": """
        if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
        return redis.call('HDEL', KEYS[1], ARGV[1])
    """,
}


class _Way(Protocol):
    """Runs on a server, or on the server of a slot."""

    @property
    def timeline(self) -> int: ...

    def send(self, *arguments: Argument) -> asyncio.Future[Any]: ...

    async def call(self, *arguments: Argument) -> Any: ...


class Scripts:
    """Runs scripts by their digest; sends the source where the server does not know it (yet, or any more)."""

    def __init__(self, link: _Way, sources: Mapping[str, str] = SOURCES) -> None:
        self._link = link
        self._sources = sources
        self._digests = {
            name: sha1(source.encode(), usedforsecurity=False).hexdigest() for name, source in sources.items()
        }

    def send(self, name: str, keys: list[str], arguments: list[Argument], source: bool = False) -> asyncio.Future[Any]:
        """Sends a script now, its source if asked to; the future gives its reply. NOSCRIPT is the caller's."""
        how = ("EVAL", self._sources[name]) if source else ("EVALSHA", self._digests[name])
        return self._link.send(*how, len(keys), *keys, *arguments)

    async def run(self, name: str, keys: list[str], arguments: list[Argument]) -> Any:
        """The script's reply."""
        try:
            return await self._link.call("EVALSHA", self._digests[name], len(keys), *keys, *arguments)
        except RedisError as error:
            if error.kind != "NOSCRIPT":
                raise
            return await self._link.call("EVAL", self._sources[name], len(keys), *keys, *arguments)

    async def run_here(self, name: str, keys: list[str], arguments: list[Argument]) -> Any:
        """The script's reply, if the server that is known has the keys: a redirect is raised, not followed.

        Nor is the source sent to another server than the one that did not know it.
        """
        timeline = self._link.timeline
        try:
            return await self.send(name, keys, arguments)
        except RedisError as error:
            if error.kind != "NOSCRIPT":
                raise
            if self._link.timeline != timeline:
                raise StoreAway("another server answers") from None
            return await self.send(name, keys, arguments, source=True)
