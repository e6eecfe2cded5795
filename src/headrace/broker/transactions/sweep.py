"""Background work of the owner of transactional ids.

Prepared transactions are finished, and last verdicts are spread again if their markers may be lost. Transactions past
their timeout are aborted, and so are those that were open when another server took over, because some of their records
may be lost. Their producers are fenced, as in Kafka. Ids unused for a week are deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.broker.transactions.finishing import Finisher, Replaced
from headrace.broker.transactions.opened import expire, open_from
from headrace.store.cluster.owned.transactions import StoredOpen
from headrace.ticks import tick
from headrace.transactions.events import Forget
from headrace.transactions.state import TransactionalId
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_UNUSED_MS = 7 * 24 * 3600 * 1000


class Sweep:
    """The background work for the ids of this node."""

    def __init__(self, store: Store, ids: Runtime[TransactionalId], finisher: Finisher) -> None:
        self._store = store
        self._ids = ids
        self._finisher = finisher

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            await tick(_EVERY_S)
            try:
                for org in self._ids.organisations:
                    await self._look_after(org)
            except (KafkaError, Replaced) as error:
                log.debug("the sweep of transactions is postponed", extra={"why": str(error)})
            except Exception:
                log.exception("the sweep of transactions failed")

    async def _look_after(self, org: str) -> None:
        mine = [thing for name, thing in list(self._ids.things.items()) if name.org == org and thing.state is not None]
        for thing in mine:
            self._finisher.start(thing)
        server = self._store.transactions.server
        resting = [thing for thing in mine if thing.state is not None and not thing.state.is_unfinished(server)]
        opened = await self._store.transactions.opened_many(org, [thing.name.id for thing in resting])
        for thing, stored in zip(resting, opened, strict=True):
            try:
                await self._check(thing, stored)
            except (KafkaError, Replaced) as error:  # the others do not wait for it
                extra = {"transactional_id": thing.name.id, "why": str(error)}
                log.debug("the sweep of a transactional id is postponed", extra=extra)

    async def _check(self, thing: Thing[TransactionalId], stored: StoredOpen | None) -> None:
        known, now_ms = thing.state, self._store.clock.wall_ms()
        if known is None or thing.is_gone:
            return
        if stored is None or stored.number != known.number + 1:
            await self._check_resting(thing, known)
            return
        is_lost = stored.server != self._store.transactions.server
        if not is_lost and stored.start_ms + known.timeout_ms > now_ms:
            return
        whole = await self._store.transactions.opened(*thing.name)
        if whole is None or whole.number != stored.number:
            return
        if is_lost:
            await self._finisher.end_lost(thing.name, whole, (known.producer_id, known.epoch))
            return
        log.warning(
            "a transaction was open for longer than its timeout: it is aborted, and its producer fenced",
            extra={"transactional_id": thing.name.id, "timeout_ms": known.timeout_ms, **self._extent(whole)},
        )
        self._finisher.start(await expire(self._ids, thing.name, open_from(whole)))

    def _extent(self, stored: StoredOpen) -> dict[str, int]:
        return {"partitions": len(stored.parts.partitions), "groups": len(stored.parts.groups)}

    async def _check_resting(self, thing: Thing[TransactionalId], known: TransactionalId) -> None:
        """Between two transactions: whether the id is still used."""
        before_ms = self._ids.now_ms() - _UNUSED_MS
        if known.updated_ms < before_ms:
            await self._ids.look(thing.name, lambda _: Forget(before_ms))
