"""The origin of replayed records: a header, written here, and read back from the target here.

The header `headrace.replay` is `cluster/topic-id/partition/offset`, followed by `/run` if the run has a name. It is the
replay's only position: records in the target were sent, by whichever run and however it ended. So a run starts by
reading the target, and memory stays small: consecutive offsets are one interval.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.client import Admin, Cluster
from headrace.client.batch_sender import ProducerState
from headrace.client.producer import SEQUENCES
from headrace.client.reader import Fetched
from headrace.lake.fetching import OffsetRange, Silence, fetch_range
from headrace.lake.records.decode import Aborted, decode
from headrace.lake.records.table_schema import HEADERS_TYPE
from headrace.lake.table.snapshot import Identity
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.special_times import EARLIEST, LATEST

HEADER = "headrace.replay"
EMPTY_ANSWERS = 3
"""Consecutive empty fetches after which a partition has nothing more: compaction may have removed its last records."""

_DIGITS = r"(?P<partition>\d{1,10})/(?P<offset>\d{1,19})"

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Origin(msgspec.Struct, frozen=True):
    """The source of a run, and the run's name."""

    identity: Identity
    run: str = ""

    @property
    def prefix(self) -> str:
        """The prefix of each header's value. The topic id is written as in Kafka's own tools."""
        topic_id = base64.urlsafe_b64encode(self.identity.topic_id).rstrip(b"=").decode()
        return f"{self.identity.cluster_id}/{topic_id}/"

    @property
    def suffix(self) -> str:
        return f"/{self.run}" if self.run else ""


# Writing


def with_origin(origin: Origin, partition: int, offsets: pa.Array, headers: pa.Array) -> pa.Array:
    """The headers column with the origin added as the last header of each row."""
    rows = len(offsets)
    values = pc.binary_join_element_wise(
        f"{origin.prefix}{partition}/", offsets.cast(pa.string()), origin.suffix, ""
    ).cast(pa.binary())
    added = pa.StructArray.from_arrays(
        [pa.array([HEADER] * rows, pa.string()), values], fields=list(HEADERS_TYPE.value_type)
    )
    if headers.null_count == rows:
        return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), added)
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    before = pc.list_flatten(headers)
    ends = np.concatenate(([0], np.cumsum(counts + 1)))
    order = np.empty(ends[-1], dtype=np.int64)
    is_added = np.zeros(ends[-1], dtype=bool)
    is_added[ends[1:] - 1] = True
    order[is_added] = len(before) + np.arange(rows)
    order[~is_added] = np.arange(len(before))
    children = pa.concat_arrays([before.cast(HEADERS_TYPE.value_type), added]).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), children)


# Finding


class OffsetSet:
    """A set of offsets, kept as intervals."""

    def __init__(self) -> None:
        self._starts: Int64s = np.empty(0, dtype=np.int64)
        self._stops: Int64s = np.empty(0, dtype=np.int64)
        self._new: list[Int64s] = []
        self._waiting = 0

    def add(self, offsets: Int64s) -> None:
        """Adds offsets."""
        self._new.append(offsets)
        self._waiting += len(offsets)
        if self._waiting > 1 << 20:
            self._merge()

    def _merge(self) -> None:
        if not self._new:
            return
        new = np.unique(np.concatenate(self._new))
        self._new, self._waiting = [], 0
        starts = np.concatenate((self._starts, new))
        stops = np.concatenate((self._stops, new + 1))
        order = np.argsort(starts, kind="stable")
        starts, reach = starts[order], np.maximum.accumulate(stops[order])
        first = np.concatenate(([True], starts[1:] > reach[:-1])) if len(starts) else np.empty(0, dtype=bool)
        last = np.concatenate((first[1:], [True])) if len(starts) else first
        self._starts, self._stops = starts[first], reach[last]

    def has(self, offsets: Int64s) -> Bools:
        """Whether each offset is in the set."""
        self._merge()
        if not len(self._starts):
            return np.zeros(len(offsets), dtype=bool)
        at = np.searchsorted(self._starts, offsets, side="right") - 1
        found: Bools = (at >= 0) & (offsets < self._stops[np.maximum(at, 0)])
        return found

    @property
    def end(self) -> int:
        """One after the highest; 0 if empty."""
        self._merge()
        return int(self._stops[-1]) if len(self._stops) else 0

    def __len__(self) -> int:
        self._merge()
        return int((self._stops - self._starts).sum())


class Arrived(msgspec.Struct):
    """What a target has of a source: offsets by source partition, and the state of their producers."""

    offsets: dict[int, OffsetSet] = {}
    reached: dict[tuple[int, int], int] = {}
    """One after the highest offset of a source partition in each target partition: (source, target)."""
    producers: dict[int, ProducerState] = {}
    ends: dict[int, int] = {}
    """The ends of the target's partitions when this was read."""

    def of(self, partition: int) -> OffsetSet:
        return self.offsets.setdefault(partition, OffsetSet())

    @property
    def records(self) -> int:
        return sum(map(len, self.offsets.values()))


def find_arrived(
    cluster: Cluster, topic: str, origin: Origin, progress: Callable[[int, int], None] = lambda seen, of: None
) -> Arrived:
    """Reads the whole target; `progress` gets the offsets read and their total.

    Records of aborted transactions do not count. Those of open ones do: they may be committed, and if not, the next
    run sends them, whereas duplicates could never be taken back.
    """
    admin = Admin(cluster)
    partitions = [(topic, p.index) for p in admin.describe_topic(topic).partitions]
    starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    stable = admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    total = sum(ends[p].offset - starts[p].offset for p in partitions)
    arrived, done = Arrived(ends={index: ends[topic, index].offset for _, index in partitions}), 0
    for _, index in partitions:
        start, decided, end = (found[topic, index].offset for found in (starts, stable, ends))
        decided = min(max(start, decided), end)
        for first, stop in ((start, decided), (decided, end)):
            wanted = OffsetRange(topic, index, first, stop)
            for portion in fetch_range(cluster, wanted, _WhatIsLeft(), read_committed=stop == decided):
                note_fetched(arrived, origin, topic, index, portion.fetched)
                progress(done + portion.stop - start, total)
        done += end - start
    return arrived


class _WhatIsLeft:
    """Skips what retention or compaction removed from the target."""

    def gone(self, cluster: Cluster, wanted: OffsetRange, position: int, error: KafkaError) -> int:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        at = (wanted.topic, wanted.partition)
        return max(position + 1, Admin(cluster).list_offsets({at: EARLIEST})[at].offset)

    def silent(self, wanted: OffsetRange, silence: Silence) -> int | None:
        return silence.position if silence.answers < EMPTY_ANSWERS else wanted.stop


def note_fetched(arrived: Arrived, origin: Origin, topic: str, target: int, fetched: Fetched) -> None:
    """Records what was fetched from a partition of the target, and the state of the last producer to continue.

    That is never a transactional one: it belongs to somebody who copied records together with their headers.
    """
    if not _note_rows(arrived, origin, topic, target, fetched.batches, fetched.aborted):
        return
    for batch in reversed(fetched.batches):
        last = read_header(batch)
        if last.is_transactional or not _note_rows(Arrived(), origin, topic, target, [batch]):
            continue
        if last.producer_id >= 0:
            after = (last.last_sequence + 1) % SEQUENCES
            arrived.producers[target] = ProducerState(last.producer_id, last.producer_epoch, after)
        return


def _note_rows(
    arrived: Arrived,
    origin: Origin,
    topic: str,
    target: int,
    batches: Sequence[memoryview],
    aborted: Sequence[Aborted] = (),
) -> bool:
    """Records what the batches have of the source; returns whether there was anything."""
    is_ours = False
    for rows in decode(batches, topic=topic, partition=target, aborted=aborted):
        for source, offsets in origins(origin, rows.column("headers")).items():
            is_ours = True
            arrived.of(source).add(offsets)
            highest = int(offsets.max()) + 1
            arrived.reached[source, target] = max(highest, arrived.reached.get((source, target), 0))
    return is_ours


def origins(origin: Origin, headers: pa.Array) -> Mapping[int, Int64s]:
    """The offsets by source partition in a headers column, only of this origin."""
    flat = pc.list_flatten(headers)
    if not len(flat):
        return {}
    mine = pc.struct_field(flat, 1).filter(_is_ours(origin, flat))
    parts = pc.extract_regex(mine, f"^{_literal(origin.prefix)}{_DIGITS}{_literal(origin.suffix)}$").drop_null()
    partitions, offsets = (pc.struct_field(parts, at).cast(pa.string()).cast(pa.int64()).to_numpy() for at in (0, 1))
    return {int(p): offsets[partitions == p] for p in np.unique(partitions)}


def carry_origin(origin: Origin, headers: pa.Array) -> Bools:
    """Whether each row has the header of a replay of this source, under any name."""
    found = np.zeros(len(headers), dtype=bool)
    flat = pc.list_flatten(headers)
    if len(flat):
        parents = pc.list_parent_indices(headers).to_numpy()
        found[parents[_is_ours(origin, flat).to_numpy(zero_copy_only=False)]] = True
    return found


def _is_ours(origin: Origin, flat: pa.Array) -> pa.Array:
    named = pc.equal(pc.struct_field(flat, 0), HEADER)
    begins = pc.starts_with(pc.struct_field(flat, 1), origin.prefix)
    return pc.fill_null(pc.and_(named, begins), False)


def _literal(text: str) -> str:
    """Escapes text for Arrow's regular expressions (RE2)."""
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)
