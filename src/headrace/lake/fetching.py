"""Reads a range of offsets of one partition, with the next fetches in flight while the last one is processed.

The one loop for everything that reads topics: Spark's source, the archive and its proof, the replay. A thread fetches
up to two responses ahead. Holes inside a range are legal: control records, compaction and offsets that are times leave
them. How missing records are treated differs, and is up to the reader (`Absence`). `client` retries an unavailable
broker until its deadline.

Free of Arrow and of the compiled decoder, so that planning ranges need not load them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Protocol

import msgspec

from headrace.client import Cluster, Reader
from headrace.client.reader import Fetched
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode, KafkaError

FETCH_BYTES = 8 * 1024 * 1024
FETCHES_AHEAD = 2
_NO_LIMIT = 1 << 62


class OffsetRange(msgspec.Struct, frozen=True):
    """The offsets [start, stop) of a partition."""

    topic: str
    partition: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Portion(msgspec.Struct, frozen=True):
    """The result of one fetch: everything a partition has of the offsets [start, stop), in whole batches."""

    fetched: Fetched
    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.fetched.batches))


class Silence(msgspec.Struct, frozen=True):
    """Consecutive responses without a record, from an offset on."""

    position: int
    answers: int
    seconds: float
    last: Fetched


class Absence(Protocol):
    """How a reader treats missing records."""

    def gone(self, cluster: Cluster, wanted: OffsetRange, position: int, error: KafkaError) -> int:
        """The position to continue at after an error, or raises."""
        ...

    def silent(self, wanted: OffsetRange, silence: Silence) -> int | None:
        """The position to continue at: the same to retry, a later one to skip offsets without records, None to stop."""
        ...


def fetch_range(
    cluster: Cluster,
    wanted: OffsetRange,
    absence: Absence,
    *,
    read_committed: bool = True,
    fetch_bytes: int = FETCH_BYTES,
    most_bytes: int = _NO_LIMIT,
) -> Generator[Portion, None, None]:
    """Consecutive portions up to the range's end, or until `most_bytes` have arrived.

    The loop has the cluster to itself until it ends or is closed.
    """
    reader = Reader(cluster, max_bytes=fetch_bytes, read_committed=read_committed)
    return _ahead(lambda: _portions(reader, wanted, absence, most_bytes))


def _portions(reader: Reader, wanted: OffsetRange, absence: Absence, most_bytes: int) -> Iterator[Portion]:
    position, left_bytes = wanted.start, most_bytes
    empty, since = 0, time.monotonic()
    while position < wanted.stop and left_bytes > 0:
        try:
            fetched = reader.fetch_raw(wanted.topic, wanted.partition, position)
            _check_start(fetched, position)
        except KafkaError as error:
            position = absence.gone(reader.cluster, wanted, position, error)
            continue
        after = _next_offset(fetched, position)
        if after > position:
            empty, since = 0, time.monotonic()
        else:
            empty += 1
            silence = Silence(position, empty, time.monotonic() - since, fetched)
            if (going_on := absence.silent(wanted, silence)) is None:
                return
            if (after := going_on) == position:
                continue
        portion = Portion(fetched, position, min(after, wanted.stop))
        yield portion
        position, left_bytes = portion.stop, left_bytes - portion.size_bytes


def _check_start(fetched: Fetched, position: int) -> None:
    """If the log now starts after the position, records in between may be lost, unless they are in this response."""
    if fetched.log_start_offset > position and not (
        fetched.batches and read_header(fetched.batches[0]).base_offset <= position
    ):
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The partition starts at {fetched.log_start_offset}.")


def _next_offset(fetched: Fetched, position: int) -> int:
    """The position after these batches."""
    return max(position, read_header(fetched.batches[-1]).next_offset) if fetched.batches else position


def _ahead(portions: Callable[[], Iterator[Portion]]) -> Generator[Portion, None, None]:
    """The same, fetched by a thread while the consumer processes the last portion."""
    ready: queue.Queue[Portion | BaseException | None] = queue.Queue(FETCHES_AHEAD)
    abandoned = threading.Event()

    def put(item: Portion | BaseException | None) -> bool:
        while not abandoned.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def fetch() -> None:
        try:
            for portion in portions():
                if not put(portion):
                    return
            put(None)
        except BaseException as error:  # raised in the consumer
            put(error)

    thread = threading.Thread(target=fetch, name="headrace-fetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        abandoned.set()
        thread.join()
