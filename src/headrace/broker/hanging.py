"""Transactions that are open in a partition and that no coordinator will end.

The store may forget that a transaction was begun while its records remain, or are restored. Its producer is fenced then
(`transactions/machine.py`), so the leader can tell: the id has a higher epoch, and all its verdicts were spread. The
leader aborts what is left over. It looks whenever another run of the servers answers, or partitions have moved or been
opened, and from time to time. What it finds no id for is only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.produce.left_over import abort_left_over
from headrace.store.cluster.owned.transactions import StoredProducer
from headrace.ticks import tick
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.store.partition.base import Partition

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_PATIENCE_S = 30.0
"""How long after a change of servers an id that is not there may still be restored."""
_MARGIN_MS = 60_000

_Moment = tuple[str, int, int]
"""The run of the servers, the term, and how many partitions are open."""


class Hanging:
    """The search on one node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._looked: _Moment | None = None
        """When there was nothing left to do."""

    async def run(self) -> None:
        """Works until it is cancelled."""
        rest_s = self._broker.options.retention_check_interval_ms / 1000
        told_s = looked_s = changed_s = 0.0
        last: _Moment | None = None
        while True:
            await tick(_EVERY_S)
            told_s, looked_s, changed_s = told_s + _EVERY_S, looked_s + _EVERY_S, changed_s + _EVERY_S
            now = self._moment()
            if now != last:
                last, changed_s = now, 0.0
            if now == self._looked and looked_s < rest_s:
                continue
            try:
                if await self._look(patient=changed_s < _PATIENCE_S):
                    self._looked, looked_s = now, 0.0
            except KafkaError as error:
                log.debug("the search for hanging transactions is postponed", extra={"why": str(error)})
            except Exception:
                log.exception("the search for hanging transactions failed")
            if told_s >= rest_s:
                told_s = 0.0
                self._tell()

    def _moment(self) -> _Moment:
        opened = sum(organisation.open_count for organisation in self._store.organisations.values())
        return self._store.transactions.server, self._store.nodes.term, opened

    def _suspects(self, org: str) -> Iterator[Partition]:
        for partition in list(self._store.organisations[org].partitions):
            if partition.producers.open and self._store.nodes.leads(partition.topic, partition.number):
                yield partition

    async def _look(self, *, patient: bool) -> bool:
        """Whether it is known of all that somebody will end them; or, unless it is patient, that nobody can tell."""
        is_sure = True
        for org in list(self._store.organisations):
            if partitions := list(self._suspects(org)):
                producers = await self._store.transactions.producers(org, self._broker.transactions.ids_of(org))
                for partition in partitions:
                    try:
                        is_sure &= await self._end_left_over(org, partition, producers, patient=patient)
                    except KafkaError as error:  # its server may be away: the others do not wait for it
                        is_sure = False
                        extra = {"partition": repr(partition), "why": str(error)}
                        log.debug("the search for hanging transactions is postponed", extra=extra)
        return is_sure

    async def _end_left_over(
        self, org: str, partition: Partition, producers: dict[int, StoredProducer], *, patient: bool
    ) -> bool:
        await partition.confirm()
        is_sure, ongoing = True, []
        for producer_id in list(partition.producers.open):
            stored = producers.get(producer_id)
            if stored is None:
                is_sure &= not patient
                continue
            if stored.is_settled(self._store.transactions.server):
                check = partial(self._check, org, stored)
                await abort_left_over(partition, (producer_id, stored.epoch), stored.number, check)
                if patient and producer_id in partition.producers.open:
                    ongoing.append(stored)
            else:
                is_sure = False
        return is_sure and await self._are_begun(org, ongoing)

    async def _are_begun(self, org: str, producers: list[StoredProducer]) -> bool:
        """Whether transactions were begun in this run of the servers; others are left over once they were ended."""
        opened = await self._store.transactions.opened_many(org, [one.name for one in producers])
        return all(
            found is not None and (found.number, found.server) == (one.number + 1, self._store.transactions.server)
            for one, found in zip(producers, opened, strict=True)
        )

    async def _check(self, org: str, stored: StoredProducer) -> None:
        """Whether the verdicts are still all spread."""
        if await self._store.transactions.producer(org, stored.name) != stored:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "The id has gone on.")

    def _tell(self) -> None:
        now_ms, longest_ms = self._store.clock.wall_ms(), self._broker.options.transaction_max_timeout_ms
        for org in list(self._store.organisations):
            for partition in self._suspects(org):
                for producer_id, first in partition.producers.open.items():
                    known = partition.producers.by_id.get(producer_id)
                    if known is not None and now_ms - known.last_seen_ms > longest_ms + _MARGIN_MS:
                        log.warning(
                            "a transaction hangs: read_committed consumers stop at its first offset; end it with "
                            "headrace transactions abort --partition",
                            extra={"partition": repr(partition), "producer_id": producer_id, "first_offset": first},
                        )
