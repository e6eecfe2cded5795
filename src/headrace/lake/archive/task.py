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
"""How much larger than guessed a piece may be that others follow."""
TRIES_IN_VAIN = 2


class ArchiveTask(msgspec.Struct, frozen=True):
    """Offsets of a partition, and the table that they go to."""

    offsets: OffsetRange
    topic_id: bytes
    table: Place
    most_bytes: int
    tail: LastRecord | None = None
    """The last record that the table has."""
    is_dense: bool = False
    """Whether a hole in it is a loss."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a task: a file, nothing yet, or trouble. `passes`: another try may succeed."""

    task: ArchiveTask
    written: Written | None = None
    tail: LastRecord | None = None
    """The last record of the file."""
    lost: tuple[int, int] | None = None
    """What the range begins with was lost by the broker's store."""
    fetched_bytes: int = 0
    trouble: str | None = None
    passes: bool = False


def split_task(whole: ArchiveTask, offset_bytes: float | None, tasks: int, least_bytes: int) -> list[ArchiveTask]:
    """A task as several whose ranges follow each other, if there is enough for them in one commit.

    What an offset is worth must be known: all but the last piece have to come to their end, or what lies behind them is
    fetched in vain.
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
    """The outcomes of pieces up to the first that did not come to its end: behind that nothing follows."""
    kept: list[Outcome] = []
    for outcome in outcomes:
        kept.append(outcome)
        if outcome.written is None or outcome.written.file.end != outcome.task.offsets.stop:
            break
    return kept


def of_one_history(cluster: Cluster, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of pieces up to the first whose last record the topic has exchanged since it was fetched.

    Its store went back meanwhile, and what was fetched behind that record may be of another history than the record.
    """
    for at, outcome in enumerate(outcomes[:-1]):
        wanted, tail = outcome.task.offsets, outcome.tail
        if tail is not None and has_another_record(cluster, wanted.topic, wanted.partition, tail):
            return list(outcomes[:at])
    return list(outcomes)


def task_runner(connecting: Connecting) -> Callable[[bytes], bytes]:
    """What Spark maps over the tasks, which travel as bytes, and so do the outcomes."""

    def run(content: bytes) -> bytes:
        return msgspec.msgpack.encode(archive_range(connecting, msgspec.msgpack.decode(content, type=ArchiveTask)))

    return run


def archive_range(connecting: Connecting, task: ArchiveTask) -> Outcome:
    """Fetches a range, or as much of it as one file takes, and writes the file."""
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
            # A topic that was made again in the meantime has other records at the same offsets.
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
        # A full disk, a store that is away: what others wrote is committed all the same.
        return Outcome(task, trouble=f"the lake is not writable: {reason(error)}", passes=True)


class NothingSkipped:
    """To the archive, what is gone is trouble, and what is not there yet waits for the next round.

    Where the broker says that the range is behind it, and twice gives nothing of it, there is nothing up to its end.
    """

    def gone(self, cluster: Cluster, wanted: OffsetRange, position: int, error: KafkaError) -> int:
        raise error

    def silent(self, wanted: OffsetRange, silence: Silence) -> int | None:
        if silence.last.last_stable_offset < wanted.stop:
            return None
        return silence.position if silence.answers < TRIES_IN_VAIN else wanted.stop


def table_rows_of(portion: Portion, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The table's rows of what was fetched, those of its offsets alone."""
    for rows in decode(
        portion.fetched.batches,
        topic=wanted.topic,
        partition=wanted.partition,
        first_offset=portion.start,
        stop_offset=portion.stop,
        aborted=portion.fetched.aborted,
    ):
        yield table_rows(rows)
