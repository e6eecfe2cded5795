"""Offsets pending in transactions, applied or dropped once the outcome is known.

They are rows of their group, written only by its owner. Whoever ends a transaction leaves its outcome in the group's
slot; the owner applies it whenever offsets are read or committed, and every second. A row whose transaction ended
without leaving an outcome came too late for it: the id's own document tells.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.groups.classic import Group
from headrace.groups.classic.events import TransactionEnded
from headrace.store.cluster.owned.groups import PendingCommit, PendingOffset
from headrace.ticks import tick
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_LATE_MS = 5_000

Verdicts = Mapping[tuple[int, int], bool]
"""Producer id and number of a transaction -> whether it was committed."""


class PendingOffsets:
    """The pending offsets of this node's groups."""

    def __init__(self, store: Store, groups: Runtime[Group], known: set[Name]) -> None:
        self._store = store
        self._groups = groups
        self._known = known
        self._scanned: WeakSet[Thing[Group]] = WeakSet()

    def may_have_some(self, name: Name) -> bool:
        """Whether something of a group that is loaded may be pending. Cheap: it is asked with every commit."""
        thing = self._groups.things.get(name)
        if thing is not None and thing.fields and thing not in self._scanned:
            self._scanned.add(thing)
            if any(isinstance(row, PendingOffset) for row in thing.rows):
                self._known.add(name)
        return name in self._known

    async def settle_quietly(self, name: Name) -> None:
        """The same as `settle`; errors go to the next caller."""
        with contextlib.suppress(KafkaError):
            await self.settle(name)

    async def settle(self, name: Name) -> Thing[Group]:
        """Acts on the verdicts that are there; the group afterwards."""
        seen = await self._store.transactions.verdicts(*name)
        group = await self._groups.look(name, lambda group: _ended(group, seen) if seen else None)
        if seen:
            await self._store.transactions.forget_verdicts(*name, seen)
        if not any(isinstance(row, PendingOffset) for row in group.rows):
            self._known.discard(name)
        return group

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            await tick(_EVERY_S)
            try:
                for name in [name for name in self._groups.things if self.may_have_some(name)]:
                    await self._drop_late(await self.settle(name))
            except KafkaError as error:
                log.debug("settling pending offsets is postponed", extra={"why": str(error)})
            except Exception:
                log.exception("settling pending offsets failed")

    async def _drop_late(self, group: Thing[Group]) -> None:
        """Drops rows that have waited for long and may have missed their verdict."""
        before_ms = self._groups.now_ms() - _LATE_MS
        late = {
            (row.producer_id, value.number): value.transactional_id
            for row, value in group.rows.items()
            if isinstance(value, PendingCommit) and value.committed.commit_ms < before_ms
        }
        verdicts: dict[tuple[int, int], bool] = {}
        for (producer_id, number), transactional_id in late.items():
            ended = await self._store.transactions.verdict_on(group.name.org, transactional_id, producer_id, number)
            if ended is not None:
                verdicts[producer_id, number] = ended
        if verdicts:
            await self._groups.look(group.name, lambda thing: _ended(thing, verdicts))


def _ended(group: Thing[Group], verdicts: Verdicts) -> TransactionEnded | None:
    """The event that applies the verdicts to the group's current rows."""
    rows: dict[Any, Any] = {}
    for row, value in group.rows.items():
        if isinstance(value, PendingCommit):
            verdict = verdicts.get((row.producer_id, value.number))
            if verdict is not None:
                rows[row] = None
                if verdict:
                    rows[row.topic, row.partition] = value.committed
    return TransactionEnded(rows) if rows else None
