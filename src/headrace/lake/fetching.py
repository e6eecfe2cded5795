"""Reads a range of offsets of one partition as rows, the next fetch under way while the last one is decoded.

Rule kept here: the range was there when it was planned, so each of its records comes, once and in order, or the
reader learns that it was lost (`DataLost`), or asked to go on without it. Holes inside the range are legal: control
records, compaction and offsets made of time leave them.

A thread of its own fetches, at most two answers ahead; a broker that is away is tried again by `client` until its
deadline.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator

import pyarrow as pa

from headrace.client import Admin, Cluster, Reader
from headrace.client.admin import EARLIEST, LATEST
from headrace.client.reader import Fetched
from headrace.lake.decode import decode
from headrace.lake.ranges import DataLost, OffsetRange
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

FETCH_BYTES = 8 * 1024 * 1024
FETCHES_AHEAD = 2
STALL_TIMEOUT_S = 60.0
"""How long records that a broker said to have may fail to come, after a change of leader for instance."""

_LOSSES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def read_range(
    connect: Callable[[], Cluster],
    wanted: OffsetRange,
    *,
    fail_on_data_loss: bool = True,
    read_committed: bool = True,
    headers: bool = True,
    fetch_bytes: int = FETCH_BYTES,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a range, as `decode` gives them. `connect` makes the cluster, which is closed at the end."""
    with connect() as cluster:
        reader = Reader(cluster, max_bytes=fetch_bytes, read_committed=read_committed)
        position = wanted.start
        for fetched in _ahead(_fetches(reader, wanted, fail_on_data_loss)):
            yield from decode(
                fetched.batches,
                topic=wanted.topic,
                partition=wanted.partition,
                first_offset=position,
                stop_offset=wanted.stop,
                aborted=fetched.aborted,
                headers=headers,
            )
            position = next_offset(fetched, position)


def next_offset(fetched: Fetched, position: int) -> int:
    """Where to go on behind these batches."""
    return max(position, read_header(fetched.batches[-1]).next_offset) if fetched.batches else position


def _fetches(reader: Reader, wanted: OffsetRange, fail_on_data_loss: bool) -> Iterator[Fetched]:
    """Fetch after fetch until the range is covered; each of them has batches."""
    position = wanted.start
    stalled_since = time.monotonic()
    while position < wanted.stop:
        try:
            fetched = reader.fetch_raw(wanted.topic, wanted.partition, position)
        except KafkaError as error:
            position = _after_loss(reader.cluster, wanted, position, error, fail_on_data_loss)
            continue
        after = next_offset(fetched, position)
        if after > position:
            yield fetched
            position, stalled_since = after, time.monotonic()
        elif time.monotonic() - stalled_since > STALL_TIMEOUT_S:
            message = (
                f"Offsets {position} to {wanted.stop - 1} of {wanted} did not come within {STALL_TIMEOUT_S:.0f} s; "
                f"the broker says that it ends at {fetched.high_watermark}."
            )
            _report(message, fail_on_data_loss)
            return


def _after_loss(
    cluster: Cluster, wanted: OffsetRange, position: int, error: KafkaError, fail_on_data_loss: bool
) -> int:
    """Where to go on after an error that says that records are gone; any other error is raised."""
    if error.code in _LOSSES:
        _report(f"{wanted} is gone, and with it offsets {position} to {wanted.stop - 1}.", fail_on_data_loss)
        return wanted.stop
    if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise error
    partition = (wanted.topic, wanted.partition)
    admin = Admin(cluster)
    first = admin.list_offsets({partition: EARLIEST})[partition].offset
    end = admin.list_offsets({partition: LATEST})[partition].offset
    if first <= position < end:
        raise error
    resume = min(first, wanted.stop) if first > position else wanted.stop
    _report(
        f"Offsets {position} to {resume - 1} of {wanted} are gone: it holds {first} to {end - 1} now."
        if end > first
        else f"Offsets {position} to {resume - 1} of {wanted} are gone: it is empty, and goes on at {end}.",
        fail_on_data_loss,
    )
    return resume


def _report(message: str, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise DataLost(f"{message} To go on without lost records, set failOnDataLoss to false.")
    log.warning("%s Going on without them.", message)


def _ahead(fetches: Iterator[Fetched]) -> Iterator[Fetched]:
    """The same, fetched by a thread while the consumer works on what it has."""
    ready: queue.Queue[Fetched | BaseException | None] = queue.Queue(FETCHES_AHEAD)
    abandoned = threading.Event()

    def put(item: Fetched | BaseException | None) -> bool:
        while not abandoned.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def fetch() -> None:
        try:
            for fetched in fetches:
                if not put(fetched):
                    return
            put(None)
        except BaseException as error:  # to be raised where it is waited for
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
