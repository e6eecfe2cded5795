"""What a Spark task does: fetch a range of a partition, decode it, write it, and say what was written.

A task decides nothing. What goes wrong with one partition is its answer, not its failure, so that the others' files
are committed all the same. It may stop before the range's end once it has fetched enough for one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa

from headrace.client import BrokerUnreachable, Cluster, Reader
from headrace.client.reader import Fetched
from headrace.lake.connecting import Connecting
from headrace.lake.decode import decode
from headrace.lake.fetching import next_offset
from headrace.lake.history import OTHER_RECORD, Tail, has_another_record, holes_in, tail_of
from headrace.lake.parquet_file import RangeWriter
from headrace.lake.place import Place
from headrace.lake.rows import table_rows
from headrace.lake.table import Written
from headrace.wire.batch import BatchError
from headrace.wire.errors import ErrorCode, KafkaError

FETCH_BYTES = 8 * 1024 * 1024
_SPARE = 4
"""How much larger than guessed a piece may be that others follow."""
TRIES_IN_VAIN = 2


class Range(msgspec.Struct, frozen=True):
    """The offsets [start, end) of a partition, and the table that they go to."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int
    table: Place
    most_bytes: int
    tail: Tail | None = None
    """The last record that the table has."""
    is_dense: bool = False
    """Whether a hole in it is a loss."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a range: a file, nothing yet, or trouble. `passes`: another try may succeed."""

    range: Range
    written: Written | None = None
    tail: Tail | None = None
    """The last record of the file."""
    lost: tuple[int, int] | None = None
    """What the range begins with was lost by the broker's store."""
    fetched_bytes: int = 0
    trouble: str | None = None
    passes: bool = False


def split(whole: Range, offset_bytes: float | None, tasks: int, least_bytes: int) -> list[Range]:
    """A range as several that follow each other, for so many tasks, if there is enough for them in one commit.

    What an offset is worth must be known: all but the last piece have to come to their end, or what lies behind them is
    fetched in vain.
    """
    piece_bytes = whole.most_bytes // max(1, tasks)
    if tasks < 2 or not offset_bytes or piece_bytes < least_bytes:
        return [whole]
    step = max(1, int(piece_bytes / offset_bytes))
    starts = range(whole.start, whole.end, step)[:tasks]
    pieces = [
        msgspec.structs.replace(
            whole, start=start, end=start + step, most_bytes=_SPARE * piece_bytes, tail=whole.tail if not at else None
        )
        for at, start in enumerate(starts)
    ]
    pieces[-1] = msgspec.structs.replace(pieces[-1], end=whole.end, most_bytes=piece_bytes)
    return pieces


def in_sequence(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of pieces up to the first that did not come to its end: behind that nothing follows."""
    kept: list[Outcome] = []
    for outcome in outcomes:
        kept.append(outcome)
        if outcome.written is None or outcome.written.file.end != outcome.range.end:
            break
    return kept


def of_one_history(cluster: Cluster, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of pieces up to the first whose last record the topic has exchanged since it was fetched.

    Its store went back meanwhile, and what was fetched behind that record may be of another history than the record.
    """
    for at, outcome in enumerate(outcomes[:-1]):
        wanted, tail = outcome.range, outcome.tail
        if tail is not None and has_another_record(cluster, wanted.topic, wanted.partition, tail):
            return list(outcomes[:at])
    return list(outcomes)


def task(connecting: Connecting) -> Callable[[bytes], bytes]:
    """What Spark maps over the ranges, which travel as bytes, and so do the outcomes."""

    def run(content: bytes) -> bytes:
        return msgspec.msgpack.encode(archive_range(connecting, msgspec.msgpack.decode(content, type=Range)))

    return run


def archive_range(connecting: Connecting, wanted: Range) -> Outcome:
    """Fetches a range, or as much of it as one file takes, and writes the file."""
    writer = RangeWriter(wanted.table, wanted.partition, wanted.start)
    position, fetched_bytes, tail, hole = wanted.start, 0, None, None
    try:
        with connecting.cluster() as cluster:
            for fetched, end in fetch_range(cluster, wanted):
                fetched_bytes += sum(map(len, fetched.batches))
                if wanted.is_dense and (hole := next(holes_in(fetched, position, end), None)):
                    end = hole[0]
                for rows in decoded(fetched, msgspec.structs.replace(wanted, end=end)):
                    writer.add(rows)
                    tail = tail_of(rows)
                position = end
                if hole or fetched_bytes >= wanted.most_bytes:
                    break
            # A topic that was made again in the meantime has other records at the same offsets.
            if cluster.topic(wanted.topic).topic_id != wanted.topic_id:
                return Outcome(wanted, trouble=f"{wanted.topic} was deleted and made again", passes=True)
            if wanted.tail and has_another_record(cluster, wanted.topic, wanted.partition, wanted.tail):
                return Outcome(wanted, trouble=OTHER_RECORD.format(offset=wanted.tail.offset))
    except BrokerUnreachable as error:
        return Outcome(wanted, trouble=str(error), passes=True)
    except KafkaError as error:
        passes = error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        return Outcome(wanted, trouble=f"{error.code.name} at offset {position}: {error.message}", passes=passes)
    except BatchError as error:
        return Outcome(wanted, trouble=f"a batch from offset {position} on cannot be read: {error}")
    if position == wanted.start:
        return Outcome(wanted, lost=hole)
    return Outcome(wanted, writer.finish(position), tail, fetched_bytes=fetched_bytes)


def decoded(fetched: Fetched, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The table's rows of what was fetched, those of the range alone."""
    for rows in decode(
        fetched.batches,
        topic=wanted.topic,
        partition=wanted.partition,
        first_offset=wanted.start,
        stop_offset=wanted.end,
        aborted=fetched.aborted,
    ):
        yield table_rows(rows)


def fetch_range(cluster: Cluster, wanted: Range) -> Iterator[tuple[Fetched, int]]:
    """Whole batches and the offset that follows them, to the range's end, or to where nothing more comes now.

    Where the broker says that the range is behind it, and twice gives nothing of it, there is nothing up to its end.
    """
    reader = Reader(cluster, max_bytes=FETCH_BYTES, read_committed=True)
    position, in_vain = wanted.start, 0
    while position < wanted.end:
        fetched = reader.fetch_raw(wanted.topic, wanted.partition, position)
        if fetched.log_start_offset > position:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The partition starts at {fetched.log_start_offset}.")
        if fetched.batches:
            position, in_vain = min(wanted.end, next_offset(fetched, position)), 0
        elif fetched.last_stable_offset < wanted.end:
            return
        else:
            in_vain += 1
            if in_vain < TRIES_IN_VAIN:
                continue
            position = wanted.end
        yield fetched, position
