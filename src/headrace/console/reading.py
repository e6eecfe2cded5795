"""Reads records for a visitor, in pages of bounded cost, from a position or a cursor, optionally filtered.

There is no state between pages: each response carries the cursor for the next. So a search stops when its page stops
asking, and no request costs more than one page's budget.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from headrace.client import Admin, Cluster, Reader
from headrace.client.admin import Missing, missing_error
from headrace.wire.batch import read_header
from headrace.wire.batch_errors import BatchError
from headrace.wire.records import Record, decode_batch
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

BUDGET_BYTES = 16 << 20
BUDGET_S = 2.0
FETCH_BYTES = 1 << 20
_COLD_WAIT_MS = 500
"""Records in Redis arrive at once; others are read from the lake first."""
_BATCH_MAX_BYTES = 64 << 20
_WIDEN = 8
_WIDENINGS = 16


class Found(msgspec.Struct):
    """One page: records in order, and the positions to continue from."""

    records: list[tuple[int, Record]]
    positions: dict[int, int]
    """Next position per partition."""
    ends: dict[int, int]
    scanned: int
    scanned_bytes: int
    trouble: str = ""

    @property
    def is_at_end(self) -> bool:
        return all(self.positions[p] >= end for p, end in self.ends.items())


class Match(msgspec.Struct, frozen=True):
    """A search for bytes in keys, values or headers, case-sensitive by default."""

    text: str
    within: tuple[str, ...] = ("key", "value", "headers")
    ignore_case: bool = True

    def fits(self, record: Record) -> bool:
        wanted = self.text.lower() if self.ignore_case else self.text
        return any(wanted in (text.lower() if self.ignore_case else text) for text in self._texts(record))

    def _texts(self, record: Record) -> Iterable[str]:
        if "key" in self.within and record.key is not None:
            yield record.key.decode(errors="replace")
        if "value" in self.within and record.value is not None:
            yield record.value.decode(errors="replace")
        if "headers" in self.within:
            for name, value in record.headers:
                yield name
                if value is not None:
                    yield value.decode(errors="replace")


def read_on(
    cluster: Cluster, topic: str, positions: dict[int, int], limit: int, match: Match | None, wait_ms: int
) -> Found:
    """Up to `limit` matching records, from these positions to the current ends, within the budget of a page."""
    keys = [(topic, partition) for partition in positions]
    known, missing = Admin(cluster).known_offsets(dict.fromkeys(keys, LATEST))
    ends = {key[1]: at.offset for key, at in known.items()}
    found = Found([], dict(positions), ends, 0, 0, words_for(missing))
    reader = Reader(cluster, max_wait_ms=0, max_bytes=FETCH_BYTES)
    deadline = time.monotonic() + BUDGET_S
    waits = wait_ms > 0 and found.is_at_end
    while len(found.records) < limit and found.scanned_bytes < BUDGET_BYTES and time.monotonic() < deadline:
        wanted: dict[TopicPartition, int] = {
            (topic, p): at for p, at in found.positions.items() if p in found.ends and (waits or at < found.ends[p])
        }
        if not wanted:
            break
        patience_ms = wait_ms if waits else _COLD_WAIT_MS
        fetched = cluster.retrying(lambda: reader.fetch(wanted, max_wait_ms=patience_ms))  # noqa: B023
        for (_, partition), piece in fetched.items():
            found.ends[partition] = max(found.ends[partition], piece.high_watermark) if waits else found.ends[partition]
            _take(found, partition, piece.batches, limit, match)
        if waits:
            break
    found.records.sort(key=lambda pair: (pair[1].timestamp, pair[0], pair[1].offset))
    return found


def words_for(missing: Missing) -> str:
    """Names partitions that cannot be read now; empty if all can."""
    return f"not shown: {missing_error(missing)}" if missing else ""


def _take(found: Found, partition: int, batches: list[memoryview], limit: int, match: Match | None) -> None:
    for batch in batches:
        if len(found.records) >= limit:
            return
        header = read_header(batch)
        at = found.positions[partition]
        found.scanned_bytes += len(batch)
        try:
            records = [] if header.is_control else decode_batch(batch, max_bytes=_BATCH_MAX_BYTES)
        except BatchError as error:
            found.trouble = f"the batch at {partition}/{header.base_offset} cannot be read: {error}"
            records = []
        for record in records:
            if record.offset < at:
                continue
            found.scanned += 1
            found.positions[partition] = record.offset + 1
            if match is None or match.fits(record):
                found.records.append((partition, record))
                if len(found.records) >= limit:
                    return
        found.positions[partition] = max(found.positions[partition], header.next_offset)


def read_newest(cluster: Cluster, topic: str, partitions: list[int], limit: int) -> Found:
    """The last `limit` records over all partitions.

    Offsets may have gaps, and in topics of format `stream` they are times: each partition is read from further and
    further back until there are enough records.
    """
    keys = [(topic, partition) for partition in partitions]
    admin = Admin(cluster)
    first, missing = admin.known_offsets(dict.fromkeys(keys, EARLIEST))
    last, without_end = admin.known_offsets(dict.fromkeys(keys, LATEST))
    missing |= without_end
    starts, ends = ({key[1]: at.offset for key, at in known.items()} for known in (first, last))
    total = Found([], dict(ends), dict(ends), 0, 0, words_for(missing))
    for partition in sorted(starts.keys() & ends.keys()):
        back, best = limit, Found([], {}, {}, 0, 0)
        for _ in range(_WIDENINGS):
            start = max(starts[partition], ends[partition] - back)
            found = read_on(cluster, topic, {partition: start}, 100_000, None, 0)
            total.scanned_bytes += found.scanned_bytes
            if not found.is_at_end and not best.positions and back > 1:
                back //= _WIDEN  # large records: even the first read exceeds the budget
                continue
            if not found.is_at_end:
                break  # over budget: the previous, narrower read has the newest records
            best = found
            if len(found.records) >= limit or start <= starts[partition]:
                break
            back *= _WIDEN
        best.records.sort(key=lambda pair: pair[1].offset)
        total.records.extend(best.records[-limit:])
        total.scanned += best.scanned
        total.trouble = total.trouble or best.trouble
        total.ends[partition] = max(total.ends[partition], best.ends.get(partition, 0))
        total.positions[partition] = total.ends[partition]
    total.records.sort(key=lambda pair: (pair[1].timestamp, pair[0], pair[1].offset))
    total.records = total.records[-limit:]
    return total
