"""A Spark task: fetches a range of a partition, decodes it, writes it, and reports what was written.

A task decides nothing. A problem with one partition is its result, not a failure, so that the others' files are
committed all the same. It may stop before the end of its range once it has fetched enough for one file.

A crash of broker and store together can lose records that were acknowledged, and archived, a moment before (durability
`everysec`). Their offsets are then reused for other records, which the topic's end offset does not show. So after a
task has fetched, and before it writes, it compares the table's last record with the topic's at that offset: only then
do the fetched records follow those of the table.

A loss that the broker knows of leaves a hole in the topic. Holes are legal in compacted topics and where offsets are
times; in all others, whose batches are contiguous, a hole is what the store lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from headrace.client import BrokerUnreachable, Cluster, Reader
from headrace.client.errors import RetriableError
from headrace.lake.archive.troubles import broker_answers
from headrace.lake.connecting import Connecting
from headrace.lake.fetching import OffsetRange, Portion, Silence, fetch_range
from headrace.lake.records.decode import decode, table_rows
from headrace.lake.records.digest import RowDigest
from headrace.lake.storage.place import Place, reason
from headrace.lake.table.delta_log import Written
from headrace.lake.table.parquet_file import RangeWriter
from headrace.lake.table.table import TopicTable
from headrace.wire.batch import read_header
from headrace.wire.batch_errors import BatchError
from headrace.wire.errors import ErrorCode, KafkaError

_SPARE = 4
"""How much larger than estimated a piece may be, unless it is the last."""
TRIES_IN_VAIN = 2

OTHER_RECORD = (
    "offset {offset} has a different record than its table: the broker's store lost records, and their offsets were "
    "reused. Move the table's folder out of the lake, and the archive will start a new one"
)


class LastRecord(msgspec.Struct, frozen=True):
    """The last record of a partition's table."""

    offset: int
    digest: str


class ArchiveTask(msgspec.Struct, frozen=True):
    """Offsets of a partition, and their table."""

    offsets: OffsetRange
    topic_id: bytes
    table: Place
    most_bytes: int
    tail: LastRecord | None = None
    """The table's last record."""
    is_dense: bool = False
    """Whether a hole in the offsets means lost records."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a task: a file, nothing yet, or a problem. `passes`: a retry may succeed."""

    task: ArchiveTask
    written: Written | None = None
    tail: LastRecord | None = None
    """The last record of the file."""
    lost: tuple[int, int] | None = None
    """Offsets at the start of the range that the broker's store lost."""
    fetched_bytes: int = 0
    trouble: str | None = None
    passes: bool = False


def split_task(whole: ArchiveTask, offset_bytes: float | None, tasks: int, least_bytes: int) -> list[ArchiveTask]:
    """Splits a task into consecutive ranges, if there is enough for several in one commit.

    The bytes per offset must be known: all but the last piece must reach their end, or the pieces after them are
    fetched for nothing.
    """
    piece_bytes = whole.most_bytes // max(1, tasks)
    if tasks < 2 or not offset_bytes or piece_bytes < least_bytes:
        return [whole]
    step, wanted = max(1, int(piece_bytes / offset_bytes)), whole.offsets
    starts = range(wanted.start, wanted.stop, step)[:tasks]
    pieces = [_piece(whole, start, start + step, _SPARE * piece_bytes) for start in starts]
    pieces[-1] = _piece(whole, starts[-1], wanted.stop, piece_bytes)
    return pieces


def _piece(whole: ArchiveTask, start: int, stop: int, most_bytes: int) -> ArchiveTask:
    offsets = msgspec.structs.replace(whole.offsets, start=start, stop=stop)
    tail = whole.tail if start == whole.offsets.start else None
    return msgspec.structs.replace(whole, offsets=offsets, most_bytes=most_bytes, tail=tail)


def in_sequence(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes up to the first piece that did not reach its end: those after it would leave a hole."""
    kept: list[Outcome] = []
    for outcome in outcomes:
        kept.append(outcome)
        if outcome.written is None or outcome.written.file.end != outcome.task.offsets.stop:
            break
    return kept


def of_one_history(cluster: Cluster, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes up to the first piece whose last record has changed in the topic since it was fetched.

    Its store went back in time meanwhile, and pieces fetched after that record may belong to another history.
    """
    for at, outcome in enumerate(outcomes[:-1]):
        wanted, tail = outcome.task.offsets, outcome.tail
        if tail is not None and has_another_record(cluster, wanted.topic, wanted.partition, tail):
            return list(outcomes[:at])
    return list(outcomes)


def task_runner(connecting: Connecting) -> Callable[[bytes], bytes]:
    """The function that Spark maps over the tasks; tasks and outcomes are passed as bytes."""

    def run(content: bytes) -> bytes:
        return msgspec.msgpack.encode(archive_range(connecting, msgspec.msgpack.decode(content, type=ArchiveTask)))

    return run


def archive_range(connecting: Connecting, task: ArchiveTask) -> Outcome:
    """Fetches a range, or as much as fits in one file, and writes the file."""
    wanted = task.offsets
    writer = RangeWriter(task.table, wanted.partition, wanted.start)
    position, fetched_bytes, tail, hole = wanted.start, 0, None, None
    try:
        with connecting.cluster() as cluster:
            with closing(fetch_range(cluster, wanted, NothingSkipped(), most_bytes=task.most_bytes)) as portions:
                for portion in portions:
                    fetched_bytes += portion.size_bytes
                    if task.is_dense and (hole := next(holes_in(portion), None)):
                        portion = msgspec.structs.replace(portion, stop=hole[0])
                    for rows in table_rows_of(portion, wanted):
                        writer.add(rows)
                        tail = tail_of(rows)
                    position = portion.stop
                    if hole:
                        break
            # A topic recreated meanwhile has other records at the same offsets.
            if cluster.topic(wanted.topic).topic_id != task.topic_id:
                return Outcome(task, trouble=f"{wanted.topic} was deleted and recreated", passes=True)
            if task.tail and has_another_record(cluster, wanted.topic, wanted.partition, task.tail):
                return Outcome(task, trouble=OTHER_RECORD.format(offset=task.tail.offset))
    except BrokerUnreachable as error:
        return Outcome(task, trouble=str(error), passes=True)
    except KafkaError as error:
        passes = isinstance(error, RetriableError) or error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        return Outcome(task, trouble=broker_answers(error, f" at offset {position}"), passes=passes)
    except BatchError as error:
        return Outcome(task, trouble=f"a batch at offset {position} cannot be read: {error}")
    if position == wanted.start:
        return Outcome(task, lost=hole)
    try:
        return Outcome(task, writer.finish(position), tail, fetched_bytes=fetched_bytes)
    except (OSError, DeltaError) as error:
        # A full disk or an unavailable store: files of other tasks are committed all the same.
        return Outcome(task, trouble=f"the lake is not writable: {reason(error)}", passes=True)


class NothingSkipped:
    """For the archive, deleted records are a problem, and records not there yet wait for the next round.

    If the broker says that the range is complete, and twice returns nothing of it, there are no records up to its end.
    """

    def gone(self, cluster: Cluster, wanted: OffsetRange, position: int, error: KafkaError) -> int:
        raise error

    def silent(self, wanted: OffsetRange, silence: Silence) -> int | None:
        if silence.last.last_stable_offset < wanted.stop:
            return None
        return silence.position if silence.answers < TRIES_IN_VAIN else wanted.stop


def table_rows_of(portion: Portion, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The fetched records as rows of the table, only those in its range."""
    for rows in decode(
        portion.fetched.batches,
        topic=wanted.topic,
        partition=wanted.partition,
        first_offset=portion.start,
        stop_offset=portion.stop,
        aborted=portion.fetched.aborted,
    ):
        yield table_rows(rows)


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


# The last record of a table


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
