"""A condition elsewhere that must hold while a batch is appended: its transaction is open, or has ended.

The first batch of a transaction in a partition, and a marker, are valid only while the transaction's own state says so,
which is stored under other keys. So the order is: know the log, check the state, append. If a marker of the same
producer arrives in between, the check is void and is repeated. In a partition only a marker ends a transaction, and
every listed partition gets one. So further batches are not checked, unless the store may have gone back meanwhile: it
may have lost a marker, and what is open is an earlier transaction, which will be ended with all that is behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headrace.wire.batch import BatchHeader
from headrace.wire.control import EndMarker

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition

Moment = tuple[int, int]


class Verification:
    """One question, and since when its answer holds. Batches of one transaction may share it in one partition."""

    __slots__ = ("_ask", "_known_at", "exceeds", "marker")

    def __init__(
        self, ask: Callable[[], Awaitable[None]], *, marker: EndMarker | None = None, exceeds: bool = False
    ) -> None:
        self._ask = ask
        """Raises the error to refuse the batch with."""
        self._known_at: Moment | None = None
        self.marker = marker
        """Set if the batch is a marker."""
        self.exceeds = exceeds
        """Whether its epoch has to be above that of an open transaction (KIP-890)."""

    def holds(self, partition: Partition, header: BatchHeader) -> bool:
        """Whether the answer is still worth something."""
        return self._known_at == moment_of(partition, header.producer_id)

    async def ask(self, partition: Partition, header: BatchHeader) -> None:
        """Asks; the log is known up to some end before."""
        moment = moment_of(partition, header.producer_id)
        await self._ask()
        self._known_at = moment
        if not header.is_control:
            partition.producers.verify(header, moment)

    def answered(self, moment: Moment) -> None:
        """It was asked by other means, after this moment."""
        self._known_at = moment


def moment_of(partition: Partition, producer_id: int) -> Moment:
    """The validity of an answer: until the producer's next marker here, or until the store may have gone back."""
    return partition.outlook.view.timeline, partition.producers.last_marker(producer_id)


def continues_transaction(partition: Partition, header: BatchHeader) -> bool:
    """Whether a batch is part of the transaction that is open here, as was verified before."""
    producers = partition.producers
    return producers.is_in_transaction(header) and producers.is_verified(
        header, moment_of(partition, header.producer_id)
    )
