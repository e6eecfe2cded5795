"""Deletes offsets unused for the retention time, those of deleted topics, and groups left without any."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.broker.postponed import Postponed
from headrace.groups.classic import Group
from headrace.groups.classic.events import RetentionCheck
from headrace.store.cluster.owned.groups import PendingOffset
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)


class OffsetRetention:
    """The background work for the groups of this node."""

    def __init__(self, store: Store, groups: Runtime[Group], check_ms: int) -> None:
        self._store = store
        self._groups = groups
        self._check_ms = check_ms

    async def run(self) -> None:
        """Works until it is cancelled."""
        postponed = Postponed("offset retention", self._store.events)
        while True:
            await asyncio.sleep(self._check_ms / 1000)
            try:
                for organisation in list(self._store.organisations.values()):
                    await organisation.catalogue.refresh()
                    for name in await self._groups.names(organisation.name):
                        if self._groups.may_decide(name):
                            await self._check(name)
            except KafkaError as error:
                postponed.by(error)
            except Exception:
                log.exception("offset retention failed")
            postponed.round_ended()

    async def _check(self, name: Name) -> None:
        group = await self._groups.look(name, self._event)
        if group.is_blank:
            await self._groups.stored.unlist(*name)

    def _event(self, group: Thing[Group]) -> RetentionCheck | None:
        if group.is_blank or any(isinstance(row, PendingOffset) for row in group.rows):
            return None
        topics = self._store.organisations[group.name.org].catalogue.by_name
        gone = frozenset(
            place
            for place, committed in group.rows.items()
            if (topic := topics.get(place[0])) is None or topic.id != committed.topic_id
        )
        return RetentionCheck({place: committed.commit_ms for place, committed in group.rows.items()}, gone)
