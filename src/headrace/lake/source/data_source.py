"""`format("headrace")`: topics as Spark reads them, in batches and as streams, with the columns of its Kafka source.

Rules kept here: an offset that Spark writes into a checkpoint says all that is needed to read the same batch again,
and whatever Spark asks for a second time is answered from it. Planning, options and reading are in modules of their
own that do not know Spark; Spark pickles these classes by reference, so its workers need this package.

An offset is JSON as in Spark's Kafka source, {"orders": {"0": 23}}: the next offset of each partition. Where a query
began is in no checkpoint before its first batch is done, and `latest` would mean something else after a restart in
between; the same goes for a partition that joins. So the end of a batch also carries where the partitions that are
new in it began, under a key that no topic can have.
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
    """A task's part: a range of offsets."""

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
    """What both readers do in Spark's workers."""

    options: SourceOptions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        # Workers alone decode: numba and its compiled loops are not for the planning process.
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
        """The ranges between, split as the options say."""
        options = self.options
        ranges = [OffsetRange(topic, index, starts[topic, index], end) for (topic, index), end in sorted(ends.items())]
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]


class BatchReader(_Reading, DataSourceReader):
    """A query of what is there when it is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        with self.options.connecting.cluster() as cluster:
            offsets = QueryOffsets(Admin(cluster), self.options)
            partitions = offsets.partitions()
            return self.tasks(offsets.starts(partitions, EARLIEST), offsets.ends(partitions))


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query that goes on with what comes."""

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
    """A partition that was read and is gone, or ends before what was read, has lost data."""
    for (topic, index), start in sorted(starts.items()):
        end = ends.get((topic, index))
        if end is None:
            offsets.losses.report(f"{topic}-{index}, which was read up to offset {start}, is gone.")
        elif end < start:
            offsets.losses.report(f"{topic}-{index} was read up to offset {start} and now ends at {end}.")


def as_offset(at: Positions) -> Offset:
    """Positions as Spark keeps them: numbers by partition by topic."""
    offset: Offset = {}
    for (topic, index), position in sorted(at.items()):
        offset.setdefault(topic, {})[str(index)] = position
    return offset


def positions(offset: Offset) -> Positions:
    """The same back; what is kept beside the positions is left out."""
    return {
        (topic, int(index)): position
        for topic, listed in offset.items()
        if not topic.startswith("@")
        for index, position in listed.items()
    }
