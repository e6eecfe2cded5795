"""A batch on its way into a partition, and its outcome."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

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


class BatchOutcome(Protocol):
    """Receives the result of a batch: a future, or anything like one."""

    def done(self) -> bool: ...

    def set_result(self, result: Appended, /) -> None: ...

    def set_exception(self, error: KafkaError, /) -> None: ...


class Pending:
    """A batch on its way into the log."""

    __slots__ = ("_told", "batch", "deadline", "header", "outcome", "packed", "sent", "size_bytes", "verification")

    def __init__(
        self,
        batch: memoryview,
        header: BatchHeader,
        outcome: BatchOutcome,
        deadline: float,
        packed: bytes = b"",
        verification: Verification | None = None,
    ) -> None:
        self.batch = batch
        self.header = header
        self.outcome = outcome
        self.deadline = deadline
        self.packed = packed
        """Its records as the format stores them, where that is another form."""
        self.size_bytes = max(len(batch), len(packed))
        self.verification = verification
        self.sent = False
        self._told: asyncio.Future[None] | None = None

    @property
    def marker(self) -> EndMarker:
        """The marker of a control batch."""
        assert self.verification is not None
        assert self.verification.marker is not None
        return self.verification.marker

    @property
    def is_answered(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.outcome.done()

    async def answered(self) -> None:
        """Returns once it is."""
        if isinstance(self.outcome, asyncio.Future):
            await asyncio.wait([self.outcome])
        elif not self.outcome.done():
            if self._told is None:
                self._told = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._told])

    def resolve(self, result: Appended) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)
            self._tell()

    def fail(self, error: KafkaError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            if isinstance(self.outcome, asyncio.Future):
                self.outcome.exception()  # a caller that has gone away does not make it an unhandled one
            self._tell()

    def _tell(self) -> None:
        if self._told is not None and not self._told.done():
            self._told.set_result(None)
