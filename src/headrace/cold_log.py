"""The cold part of a log: records that left Redis and are read from somewhere else. What the store asks of it.

In no room, because two rooms that do not know each other agree on it: the store asks, the lake answers, and `cli`
plugs one into the other. Without a cold log no topic is tiered. Whatever cannot be known right now raises `ColdAway`,
a KAFKA_STORAGE_ERROR: consumers try again. It is never an offset out of range, which would reset them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from headrace.organisations import DEFAULT_ORGANISATION
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.schema import Buffer


class ColdAway(KafkaError):
    """The table is missing, unreadable, too slow, or lacks what was asked for."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class ColdPartition(msgspec.Struct, frozen=True):
    """A partition by name and by id: the table of an earlier topic of this name is not its cold part."""

    topic: str
    topic_id: bytes
    number: int
    organisation: str = DEFAULT_ORGANISATION
    """Owner of the topic: each organisation has its own tables."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Held(msgspec.Struct, frozen=True):
    """The contiguous offsets [start, end) that live files cover, the last such stretch of the partition."""

    start: int
    end: int
    size_bytes: int


class ColdBatches(msgspec.Struct, frozen=True):
    """Whole record batches; the first may begin before the requested offset. `next_offset` follows the last one.

    A batch that is a writable view is the caller's to change: what lies outside its CRC is the broker's to fill in.
    No batches and a `next_offset` above the asked one: nothing but a recorded gap, or offsets without records, lies
    between.
    """

    batches: Sequence[Buffer]
    next_offset: int


class TableProof(msgspec.Struct, frozen=True):
    """The result of the last `headrace lake verify` of a table."""

    at_ms: int
    files: int
    rows: int
    findings: int


class ColdTable(msgspec.Struct, frozen=True):
    """The table that holds a topic's cold part, for people."""

    place: str
    files: int
    rows: int
    size_bytes: int
    last_commit_ms: int
    rejects: int | None
    """Records that fit no schema, if the topic has a typed table."""
    proof: TableProof | None


class ColdLog(Protocol):
    """A reader of cold records. Every call answers from what the files hold, and raises `ColdAway` if it cannot."""

    async def check(self) -> None:
        """Raises if the lake cannot be reached at all; topics without a table are no reason."""
        ...

    async def held(self, partition: ColdPartition, *, fresh: bool = False) -> Held | None:
        """What the table has, None if nothing; `fresh`: from a new snapshot with every file checked, for trims."""
        ...

    def reason(self, partition: ColdPartition) -> str | None:
        """Why nothing is held, or why it is not known, as a sentence for people: from the last call of `held`."""
        ...

    async def read(self, partition: ColdPartition, offset: int, stop: int, max_bytes: int) -> ColdBatches:
        """Batches from the one that holds `offset`, or the next behind it, below `stop`, of about `max_bytes`."""
        ...

    async def find_time(
        self, partition: ColdPartition, timestamp: int, first: int, stop: int
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record in [first, stop) at or after a time."""
        ...

    async def find_newest(self, partition: ColdPartition, first: int, stop: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record in [first, stop) with the highest timestamp."""
        ...

    async def retained_start(
        self, partition: ColdPartition, first: int, stop: int, oldest_ms: int | None, most_bytes: int | None
    ) -> int:
        """Where the log may start: files before it have only records older than `oldest_ms`, or are beyond
        `most_bytes` counted back from `stop`. At the granularity of files; at most `stop`."""
        ...

    async def describe(self, partition: ColdPartition) -> ColdTable:
        """The table that a partition's cold records are in."""
        ...

    async def close(self) -> None: ...
