"""A batch on its way into a partition, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from headrace.store.partition.sequences.verification import Verification
from headrace.wire.batch import BatchHeader
from headrace.wire.control import EndMarker
from headrace.wire.errors import KafkaError


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a batch is in the log, now or since it was sent before."""

    base_offset: int
    duplicate: bool = False
    append_time_ms: int | None = None
    """The time that its records got, where the store gives it."""


class Pending(msgspec.Struct, eq=False):
    """A batch on its way into the log, and the receiver of its outcome."""

    batch: memoryview
    header: BatchHeader
    deadline: float
    size_bytes: int
    """Of the batch, or of the packed form if that is larger."""
    packed: bytes = b""
    """Its records as the format stores them, where that is another form."""
    verification: Verification | None = None
    sent: bool = False

    @property
    def marker(self) -> EndMarker:
        """The marker of a control batch."""
        assert self.verification is not None
        assert self.verification.marker is not None
        return self.verification.marker

    @property
    def is_answered(self) -> bool:
        """Whether its outcome was told."""
        raise NotImplementedError

    async def answered(self) -> None:
        """Returns once it is."""
        raise NotImplementedError

    def resolve(self, result: Appended) -> None:
        """It is in the log. Told again, it does nothing."""
        raise NotImplementedError

    def fail(self, error: KafkaError) -> None:
        """It is not, or nobody knows. Told again, it does nothing."""
        raise NotImplementedError


class AwaitedBatch(Pending, kw_only=True):
    """A batch whose outcome is a future."""

    outcome: asyncio.Future[Appended]

    @property
    def is_answered(self) -> bool:
        return self.outcome.done()

    async def answered(self) -> None:
        await asyncio.wait([self.outcome])

    def resolve(self, result: Appended) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)

    def fail(self, error: KafkaError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # a caller that has gone away does not make it an unhandled one


def are_awaited(pendings: Iterable[Pending]) -> bool:
    """Whether anybody still waits for one of them."""
    return any(not pending.is_answered for pending in pendings)
