"""What a coordinator does although nobody asks.

Stored groups are loaded at the start, and again whenever nodes come or go: the session of a member that does not come
back has to end although no request names its group. Groups that went to another node are let go, those that a store
that went back in time lost are written again, and what nobody has used for the retention time is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.broker.live_group import LiveGroup
from headrace.groups.events import RetentionCheck
from headrace.groups.offsets import expired_topics
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.coordinator import Coordinator

log = logging.getLogger(__name__)

_LOOK_AFTER_EVERY_S = 1.0
_NEVER = -1


class GroupUpkeep:
    """The background work of one coordinator."""

    def __init__(self, coordinator: Coordinator, retention_check_ms: int) -> None:
        self._coordinator = coordinator
        self._retention_check_ms = retention_check_ms
        self._loaded_term = _NEVER

    def start(self) -> None:
        """Works until the store is closed."""
        self._coordinator.store.spawn(self._look_after())
        self._coordinator.store.spawn(self._apply_retention())

    async def _look_after(self) -> None:
        while True:
            try:
                await self._load_what_came()
                await self._check_what_is_here()
            except KafkaError as error:
                log.debug("looking after groups has to wait", extra={"why": str(error)})
            except Exception:
                log.exception("looking after groups failed")
            await asyncio.sleep(_LOOK_AFTER_EVERY_S)

    async def _load_what_came(self) -> None:
        term = self._coordinator.store.nodes.term
        if self._loaded_term != term:
            await self._coordinator.load_all()
            self._loaded_term = term

    async def _check_what_is_here(self) -> None:
        for live in list(self._coordinator.live.values()):
            if not self._coordinator.is_mine(live.id):
                async with live.alone():
                    if not live.is_gone:
                        log.info("a group went to another node", extra={"group": live.id})
                        live.let_go()
            elif not live.is_settled and self._coordinator.store.link.is_up:
                async with self._coordinator.locked(live.id):
                    pass  # entering is what settles it

    async def _apply_retention(self) -> None:
        while True:
            await asyncio.sleep(self._retention_check_ms / 1000)
            try:
                await self._coordinator.store.catalogue.refresh()
                for name in await self._coordinator.store.groups.names():
                    if self._coordinator.may_decide(name):
                        await self._expire(name)
            except KafkaError as error:
                log.info("retention of offsets has to wait", extra={"why": str(error)})
            except Exception:
                log.exception("retention of offsets failed")

    async def _expire(self, group_id: str) -> None:
        async with self._coordinator.locked(group_id) as live:
            if live.is_blank:
                await self._coordinator.store.groups.unlist(group_id)
                return
            await self._expire_offsets(live)
            if live.group is None:
                await live.purge()
                return
            last_commit_ms = max((c.commit_ms for c in live.offsets.values()), default=None)
            await live.decide(RetentionCheck(last_commit_ms))

    async def _expire_offsets(self, live: LiveGroup) -> None:
        """Offsets of topics that are gone go with them; the others when their time is over."""
        topics = self._coordinator.store.catalogue.by_name
        dead = {
            place
            for place, committed in live.offsets.items()
            if (topic := topics.get(place[0])) is None or topic.id != committed.topic_id
        }
        commits: dict[str, int] = {}
        for (topic_name, _), committed in live.offsets.items():
            commits[topic_name] = max(commits.get(topic_name, 0), committed.commit_ms)
        if live.group is not None:
            now_ms = self._coordinator.now_ms()
            old = expired_topics(live.group, commits, now_ms, self._coordinator.settings)
            dead.update(place for place in live.offsets if place[0] in old)
        await live.forget_offsets(dead)
