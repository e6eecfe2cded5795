"""Checks that a topic is still the one its table was archived from, and finds what its store has lost.

A crash of broker and store together can lose records that were acknowledged, and archived, a moment before (durability
`everysec`). Their offsets are then reused for other records, which the topic's end offset does not show. So after a
task has fetched, and before it writes, it compares the table's last record with the topic's at that offset: only then
do the fetched records follow those of the table.

A loss that the broker knows of leaves a hole in the topic. Holes are legal in compacted topics and where offsets are
times; in all others, whose batches are contiguous, a hole is what the store lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.client import Cluster, Reader
from headrace.client.admin import ConfigEntry
from headrace.lake.fetching import Portion
from headrace.lake.records.decode import decode, table_rows
from headrace.lake.records.digest import RowDigest
from headrace.lake.table.table import TopicTable
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode, KafkaError

CLEANUP, FORMAT = "cleanup.policy", "headrace.format"

OTHER_RECORD = (
    "offset {offset} has another record than its table: the broker's store lost records, and their offsets were used "
    "again. Move the table's folder out of the lake, and the archive begins a new one"
)


class LastRecord(msgspec.Struct, frozen=True):
    """The last record of a partition's table."""

    offset: int
    digest: str


class Tails:
    """The last records of tables: from what was just written, or else from the last file."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[str, LastRecord | None]] = {}

    def note(self, topic: str, partition: int, file: str, tail: LastRecord | None) -> None:
        """Remembers the last record of a committed file; None: it has no rows."""
        if tail is not None:
            self._known[topic, partition] = (file, tail)

    def of(self, table: TopicTable, partition: int) -> LastRecord | None:
        """The tail of a partition; None if the table has no row of it."""
        covered = table.coverage.get(partition)
        if covered is None:
            return None
        at, last = (table.identity.topic, partition), covered.files[-1].path
        if at not in self._known or self._known[at][0] != last:
            self._known[at] = (last, _read_tail(table, partition))
        return self._known[at][1]


def tail_of(rows: pa.RecordBatch) -> LastRecord:
    """The last of these rows."""
    last = rows.slice(rows.num_rows - 1)
    digest = RowDigest()
    digest.add(last)
    return LastRecord(last.column("offset")[0].as_py(), digest.hex())


def _read_tail(table: TopicTable, partition: int) -> LastRecord | None:
    with_rows = [file for file in table.coverage[partition].files if file.rows]
    if not with_rows:
        return None
    with table.place.open(with_rows[-1].path) as opened, pq.ParquetFile(opened) as parquet:
        rows = parquet.read_row_group(parquet.num_row_groups - 1).combine_chunks()
    return tail_of(rows.to_batches()[-1])


def has_another_record(cluster: Cluster, topic: str, partition: int, tail: LastRecord) -> bool:
    """Whether the topic has a different record than the table at the tail's offset; a deleted one does not count."""
    reader = Reader(cluster, read_committed=True, max_wait_ms=0)
    try:
        fetched = reader.fetch_raw(topic, partition, tail.offset, max_bytes=1)
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return False
    rows = decode(
        fetched.batches,
        topic=topic,
        partition=partition,
        first_offset=tail.offset,
        stop_offset=tail.offset + 1,
        aborted=fetched.aborted,
    )
    return any(tail_of(table_rows(found)) != tail for found in rows)


def holes_in(portion: Portion) -> Iterator[tuple[int, int]]:
    """The ranges of a portion that are in none of its batches.

    A marker that no producer wrote only moves readers past offsets without records (`wire/control.py`).
    """
    position = portion.start
    for batch in portion.fetched.batches:
        header = read_header(batch)
        if header.is_control and header.producer_id < 0:
            continue
        if header.base_offset > position:
            yield position, min(header.base_offset, portion.stop)
        position = max(position, header.next_offset)
    if position < portion.stop:
        yield position, portion.stop


def is_dense(configs: Iterable[ConfigEntry]) -> bool:
    """Whether a topic's batches follow each other without holes, by its configs."""
    values = {entry.name: entry.value or "" for entry in configs}
    return "compact" not in values.get(CLEANUP, "") and values.get(FORMAT, "log") == "log"
