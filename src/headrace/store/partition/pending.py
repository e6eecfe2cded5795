"""A batch on its way into a partition, and its outcome."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import msgspec

from headrace.store.partition.verification import Verification
from headrace.wire.batch import BatchHeader
from headrace.wire.control import EndMarker
from headrace.wire.errors import KafkaError


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a batch is in the log, now or since it was sent before."""

    base_offset: int
    duplicate: bool = False
    append_time_ms: int | None = None
    """The time that its records got, where the store gives it."""


class Pending(ABC):
    """A batch on its way into the log, and the receiver of its outcome."""

    __slots__ = ("batch", "deadline", "header", "packed", "sent", "size_bytes", "verification")

    def __init__(
        self,
        batch: memoryview,
        header: BatchHeader,
        deadline: float,
        packed: bytes = b"",
        verification: Verification | None = None,
    ) -> None:
        self.batch = batch
        self.header = header
        self.deadline = deadline
        self.packed = packed
        """Its records as the format stores them, where that is another form."""
        self.size_bytes = max(len(batch), len(packed)) if packed else len(batch)
        self.verification = verification
        self.sent = False

    @property
    def marker(self) -> EndMarker:
        """The marker of a control batch."""
        assert self.verification is not None
        assert self.verification.marker is not None
        return self.verification.marker

    @property
    @abstractmethod
    def is_answered(self) -> bool:
        """Whether its outcome was told."""

    @abstractmethod
    async def answered(self) -> None:
        """Returns once it is."""

    @abstractmethod
    def resolve(self, result: Appended) -> None:
        """It is in the log. Told again, it does nothing."""

    @abstractmethod
    def fail(self, error: KafkaError) -> None:
        """It is not, or nobody knows. Told again, it does nothing."""


class AwaitedBatch(Pending):
    """A batch whose outcome is a future."""

    __slots__ = ("outcome",)

    def __init__(
        self,
        batch: memoryview,
        header: BatchHeader,
        deadline: float,
        packed: bytes = b"",
        verification: Verification | None = None,
    ) -> None:
        super().__init__(batch, header, deadline, packed, verification)
        self.outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

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
