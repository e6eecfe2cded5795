"""A Spark task: fetches a range of a partition, decodes it, writes it, and reports what was written.

A task decides nothing. A problem with one partition is its result, not a failure, so that the others' files are
committed all the same. It may stop before the end of its range once it has fetched enough for one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from headrace.client import BrokerUnreachable, Cluster
from headrace.client.errors import RetriableError
from headrace.lake.archive.history import OTHER_RECORD, LastRecord, has_another_record, holes_in, tail_of
from headrace.lake.archive.troubles import broker_answers
from headrace.lake.connecting import Connecting
from headrace.lake.fetching import OffsetRange, Portion, Silence, fetch_range
from headrace.lake.records.decode import decode, table_rows
from headrace.lake.storage.place import Place, reason
from headrace.lake.table.delta_log import Written
from headrace.lake.table.parquet_file import RangeWriter
from headrace.wire.batch_errors import BatchError
from headrace.wire.errors import ErrorCode, KafkaError

_SPARE = 4
"""How much larger than estimated a piece may be, unless it is the last."""
TRIES_IN_VAIN = 2


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
