"""`format("headrace")`: topics in Spark, as batch and streaming sources, with the columns of its Kafka source.

Rules kept here: an offset in Spark's checkpoint has everything needed to read the same batch again, and repeated
requests of Spark are answered from it. Planning, options and reading are in separate modules without Spark. Spark
pickles these classes by reference, so its workers need this package.

An offset is JSON as in Spark's Kafka source, {"orders": {"0": 23}}: the next offset of each partition. The start of a
query is in no checkpoint before its first batch is done, and `latest` would mean something else after a restart in
between; the same holds for a new partition. So the end of a batch also has the starts of the partitions that are new
in it, under a key that no topic can have.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.client import Admin
from headrace.lake.connecting import OptionError
from headrace.lake.fetching import OffsetRange
from headrace.lake.source.offsets import Positions, QueryOffsets, admit, split_ranges
from headrace.lake.source.options import SourceOptions, parse_options
from headrace.wire.special_times import EARLIEST, LATEST

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
WITH_HEADERS = StructType([*COLUMNS.fields, StructField("headers", ArrayType(HEADER))])

BEGAN = "@began"
INITIAL = "@initial"

Offset = dict[str, Any]


class RangePartition(InputPartition):
    """A task's range of offsets."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class HeadraceSource(DataSource):
    """Topics of a Kafka cluster."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.parsed = parse_options(dict(options))

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        return WITH_HEADERS if self.parsed.include_headers else COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        self._check(schema)
        return BatchReader(self.parsed.for_batch())

    def streamReader(self, schema: StructType) -> StreamReader:
        self._check(schema)
        return StreamReader(self.parsed.for_stream())

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            names = ", ".join(self.schema().fieldNames())
            raise OptionError(f"The columns of a topic are {names} with their types; omit .schema().")


class _Reading:
    """Common to both readers, in Spark's workers."""

    options: SourceOptions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        # Only workers decode: the planning process does not need numba and its compiled loops.
        from headrace.lake.records.decode import spark_rows
        from headrace.lake.source.task import read_range

        assert isinstance(partition, RangePartition)
        options = self.options
        for rows in read_range(
            options.connecting.patient_cluster,
            partition.wanted,
            fail_on_data_loss=options.fail_on_data_loss,
            read_committed=options.connecting.read_committed,
            headers=options.include_headers,
        ):
            yield spark_rows(rows, headers=options.include_headers)

    def tasks(self, starts: Positions, ends: Positions) -> list[RangePartition]:
        """The ranges in between, split by the options."""
        options = self.options
        ranges = [OffsetRange(topic, index, starts[topic, index], end) for (topic, index), end in sorted(ends.items())]
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]


class BatchReader(_Reading, DataSourceReader):
    """A batch query: the records that exist when it is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        with self.options.connecting.cluster() as cluster:
            offsets = QueryOffsets(Admin(cluster), self.options)
            partitions = offsets.partitions()
            return self.tasks(offsets.starts(partitions, EARLIEST), offsets.ends(partitions))


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._target: Positions | None = None

    def initialOffset(self) -> Offset:
        with self.options.connecting.cluster() as cluster:
            offsets = QueryOffsets(Admin(cluster), self.options)
            return as_offset(offsets.starts(offsets.partitions(), LATEST)) | {INITIAL: True}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        starts = positions(start)
        with self.options.connecting.patient_cluster() as cluster:
            offsets = QueryOffsets(Admin(cluster), self.options)
            ends = self._ends(offsets) if self._target is None else dict(self._target)
            _check_progress(offsets, starts, ends)
            begins = starts | offsets.earliest(set(ends) - set(starts))
        if isinstance(limit, ReadMaxRows):
            ends = admit(begins, ends, limit.max_rows)
        if ends == starts:
            return start
        began = {p: begins[p] for p in ends if INITIAL in start or p not in starts}
        return as_offset(ends) | ({BEGAN: as_offset(began)} if began else {})

    def reportLatestOffset(self) -> Offset | None:
        with self.options.connecting.patient_cluster() as cluster:
            return as_offset(self._ends(QueryOffsets(Admin(cluster), self.options)))

    def prepareForTriggerAvailableNow(self) -> None:
        with self.options.connecting.patient_cluster() as cluster:
            self._target = self._ends(QueryOffsets(Admin(cluster), self.options))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        began = positions(end.get(BEGAN, {}))
        starts = began | ({} if INITIAL in start and began else positions(start))
        return self.tasks(starts, positions(end))

    def _ends(self, offsets: QueryOffsets) -> Positions:
        return offsets.latest(offsets.partitions(missing_ok=True))


def _check_progress(offsets: QueryOffsets, starts: Positions, ends: Positions) -> None:
    """A partition that has disappeared, or ends before what was read, has lost data."""
    for (topic, index), start in sorted(starts.items()):
        end = ends.get((topic, index))
        if end is None:
            offsets.losses.report(f"{topic}-{index}, which was read up to offset {start}, is gone.")
        elif end < start:
            offsets.losses.report(f"{topic}-{index} was read up to offset {start} but now ends at {end}.")


def as_offset(at: Positions) -> Offset:
    """Positions in Spark's form: offsets by partition by topic."""
    offset: Offset = {}
    for (topic, index), position in sorted(at.items()):
        offset.setdefault(topic, {})[str(index)] = position
    return offset


def positions(offset: Offset) -> Positions:
    """Parses positions, without the additional key."""
    return {
        (topic, int(index)): position
        for topic, listed in offset.items()
        if not topic.startswith("@")
        for index, position in listed.items()
    }
