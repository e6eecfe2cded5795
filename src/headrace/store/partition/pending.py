"""A batch on its way into a partition, and its outcome."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from headrace.store.partition.verification import Verification
from headrace.wire.batch import BatchHeader
from headrace.wire.control import EndMarker
from headrace.wire.errors import KafkaError


class Appended(NamedTuple):
    """Where a batch is in the log, now or since it was sent before."""

    base_offset: int
    duplicate: bool = False
    append_time_ms: int | None = None
    """The time that its records got, where the store gives it."""


class Pending:
    """A batch on its way into the log."""

    __slots__ = ("batch", "deadline", "future", "header", "packed", "sent", "verification")

    def __init__(
        self,
        batch: memoryview,
        header: BatchHeader,
        future: asyncio.Future[Appended],
        deadline: float,
        packed: bytes,
        verification: Verification | None,
    ) -> None:
        self.batch = batch
        self.header = header
        self.future = future
        self.deadline = deadline
        self.packed = packed
        """Its records as the format stores them, where that is another form."""
        self.verification = verification
        self.sent = False

    @property
    def size_bytes(self) -> int:
        return max(len(self.batch), len(self.packed))

    @property
    def marker(self) -> EndMarker:
        """What it is, if it is a control batch."""
        assert self.verification is not None
        assert self.verification.marker is not None
        return self.verification.marker

    def resolve(self, result: Appended) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()
