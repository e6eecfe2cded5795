"""Transactions that are open in a partition and that no coordinator will end.

The store may forget that a transaction was begun while its records remain, or are restored. Its producer is fenced then
(`transactions/machine.py`), so the leader can tell: the id has a higher epoch, and all its verdicts were spread. The
leader aborts what is left over. It looks whenever another run of the servers answers, or partitions have moved or been
opened, and from time to time.

The store may also forget the id itself, at a moment when its last owner had let it go and the next one had not read it.
Then nobody will ever decide. Once all nodes have restored what they have in memory and every id was looked at, the
leader aborts what no id knows.
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
"""How long after a change a transaction that is open may be one that the store forgot."""
_FORGOTTEN_LEASES = 2
"""How long after a change an id that is not there may still be restored by a node that has no lease yet."""
_MARGIN_MS = 60_000

_Moment = tuple[str, int, int]
"""The run of the servers, the term, and how many partitions are open."""
_Producers = dict[int, StoredProducer]


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
                if await self._look(changed_s):
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

    async def _look(self, since_s: float) -> bool:
        """Whether it is known of all that somebody will end them."""
        is_sure = True
        for org in list(self._store.organisations):
            if partitions := list(self._suspects(org)):
                producers = await self._producers(org)
                for partition in partitions:
                    try:
                        is_sure &= await self._end_left_over(org, partition, producers, patient=since_s < _PATIENCE_S)
                        is_sure &= await self._end_forgotten(org, partition, producers, since_s)
                    except KafkaError as error:  # its server may be away: the others do not wait for it
                        is_sure = False
                        extra = {"partition": repr(partition), "why": str(error)}
                        log.debug("the search for hanging transactions is postponed", extra=extra)
        return is_sure

    async def _producers(self, org: str) -> _Producers:
        return await self._store.transactions.producers(org, self._broker.transactions.ids_of(org))

    async def _end_left_over(self, org: str, partition: Partition, producers: _Producers, *, patient: bool) -> bool:
        await partition.confirm()
        is_sure, ongoing = True, []
        for producer_id in list(partition.producers.open):
            stored = producers.get(producer_id)
            if stored is None:
                continue
            if stored.is_settled(self._store.transactions.server):
                check = partial(self._check, org, stored)
                await abort_left_over(partition, (producer_id, stored.epoch), stored.number, check)
                if patient and producer_id in partition.producers.open:
                    ongoing.append(stored)
            else:
                is_sure = False
        return is_sure and await self._are_begun(org, ongoing)

    async def _end_forgotten(self, org: str, partition: Partition, producers: _Producers, since_s: float) -> bool:
        """False while something is open that no id knows.

        An id that is not settled may have had this producer id before, and its verdict is still to be spread.
        """
        forgotten = partition.producers.open.keys() - producers
        nodes, server = self._store.nodes, self._store.transactions.server
        is_late = since_s * 1000 >= self._store.leases.lease_ms * _FORGOTTEN_LEASES
        is_told = all(stored.is_settled(server) for stored in producers.values())
        if forgotten and is_late and is_told and nodes.restored.by_all(nodes.seen):
            for producer_id in forgotten:
                known = partition.producers.by_id[producer_id]
                check = partial(self._check_forgotten, org, producer_id)
                await abort_left_over(partition, (producer_id, known.epoch + 1), known.ended, check)
        return not forgotten & partition.producers.open.keys()

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

    async def _check_forgotten(self, org: str, producer_id: int) -> None:
        """Whether still no id knows a producer."""
        if producer_id in await self._producers(org):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Its id was restored.")

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
