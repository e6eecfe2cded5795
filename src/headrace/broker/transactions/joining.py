"""Adds partitions and groups to a transaction, which any node may do: the script that adds also decides.

A produce request of version 2 of the protocol adds the partitions it writes to; an older one only verifies them. Both
happen once for all partitions of a request, and not at all for partitions where the transaction is already open: there
only its marker ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.cluster.owned.transactions import Added, Parts, TxnPartition
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition
    from headrace.store.store import Store

_PAUSE_S = 0.02
_PATIENCE_S = 0.1
"""How long a request waits inside for the transaction before it to be finished."""


class Producing(NamedTuple):
    """A transactional producer, as a request names it."""

    org: str
    transactional_id: str
    producer_id: int
    epoch: int


class Joining:
    """The way of a node into transactions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, who: Producing, parts: Parts, *, only_check: bool = False) -> Added:
        """Adds to the open transaction, or begins one."""
        producer = who.producer_id, who.epoch
        now_ms = self._store.clock.wall_ms()
        return await self._store.transactions.add(
            who.org, who.transactional_id, producer, parts, now_ms, only_check=only_check
        )

    async def add_patiently(self, who: Producing, parts: Parts, *, only_check: bool) -> Added:
        """The same; if the transaction before it is just being finished, that is waited for a moment."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            added = await self.add(who, parts, only_check=only_check)
            if added.error is not ErrorCode.CONCURRENT_TRANSACTIONS or asyncio.get_running_loop().time() > deadline:
                return added
            await asyncio.sleep(_PAUSE_S)

    async def check(self, who: Producing, partitions: Sequence[Partition], *, version: int, patiently: bool) -> int:
        """Adds partitions, or verifies them, depending on the version; raises the coordinator's error.

        Returns the number of the transaction: all before it have ended, and have their markers.
        """
        parts = Parts([TxnPartition(partition.topic.id, partition.number) for partition in partitions])
        only_check = version < IMPLICIT_SINCE
        add = self.add_patiently if patiently else self.add
        error, number = await add(who, parts, only_check=only_check)
        if error:
            raise KafkaError(_produce_error(error, version), f"Transaction of '{who.transactional_id}': {error.name}.")
        return number


IMPLICIT_SINCE = 12
"""Produce of this version adds its partitions by itself."""
_ABORTABLE_SINCE = 11


def _produce_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error for a Produce of this version."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_SINCE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
