"""A topic with a table, made through a real broker and without Spark, and the reader of its cold records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.client import Cluster, Producer, Reader
from headrace.client.admin import Admin
from headrace.cold_log import ColdPartition
from headrace.lake.archive.task import ArchiveTask, archive_range
from headrace.lake.cold.log import LakeLog, open_cold_log
from headrace.lake.connecting import Connecting
from headrace.lake.fetching import OffsetRange
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.parquet_file import write_gap
from headrace.lake.table.snapshot import Identity
from headrace.lake.table.table import TopicTable
from headrace.wire.batch import check_crc
from headrace.wire.compression import Compression
from headrace.wire.records import Header, Record, decode_batch
from headrace.wire.schema import Buffer
from headrace.wire.special_times import EARLIEST, LATEST

OpenCold = Callable[["ColdTopic"], LakeLog]

EVERYTHING = 1 << 62
"""A `stop` that stops nothing."""


class ColdTopic:
    """A topic of one partition, its table, and what both hold."""

    def __init__(self, address: str, lake: Path, name: str, configs: Mapping[str, str] | None = None) -> None:
        self.address, self.lake, self.name = address, lake, name
        self.cluster = Cluster(address)
        self.admin = Admin(self.cluster)
        topic_id = self.admin.create_topic(name, 1, configs)
        cluster_id = self.admin.describe_cluster().cluster_id
        assert cluster_id is not None
        self.identity = Identity(cluster_id, name, topic_id)
        self.partition = ColdPartition(name, topic_id, 0)

    def send(
        self,
        values: Sequence[bytes | None],
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        times: Sequence[int] | None = None,
        compression: Compression = "none",
    ) -> None:
        """Appends records; `times` one each."""
        with Producer(self.cluster, compression=compression) as producer:
            for index, value in enumerate(values):
                producer.send(self.name, value, key, headers, 0, times[index] if times else None)

    def end(self) -> int:
        return self.admin.list_offsets({(self.name, 0): LATEST})[self.name, 0].offset

    def table(self) -> TopicTable:
        return open_or_create(place_of(self.lake), self.identity, {0: 0})

    def archive(self, *ends: int) -> TopicTable:
        """Adds the records up to each of these offsets, or to the end, as a file each, in a commit each."""
        table = self.table()
        for end in ends or [self.end()]:
            offsets = OffsetRange(self.name, 0, table.position(0), end)
            task = ArchiveTask(offsets, self.identity.topic_id, table.place, EVERYTHING)
            outcome = archive_range(Connecting(self.address), task)
            assert outcome.written is not None, outcome.trouble
            table.commit([outcome.written])
        return table

    def archive_gap(self, end: int) -> None:
        """Records that nothing was archived up to an offset."""
        table = self.table()
        table.commit([write_gap(table.place, 0, table.position(0), end)])

    def hot(self) -> list[Record]:
        """The records as the broker serves them."""
        return [record for _, _, record in Reader(self.cluster).read({(self.name, 0): EARLIEST})]

    def reader(self) -> LakeLog:
        return open_cold_log(str(self.lake), {}, self.identity.cluster_id)


async def read_all(cold: LakeLog, partition: ColdPartition, start: int, stop: int, max_bytes: int) -> list[Record]:
    """All records of [start, stop), as a consumer reads them: fetch after fetch."""
    records: list[Record] = []
    position = start
    while position < stop:
        read = await cold.read(partition, position, stop, max_bytes)
        assert read.next_offset > position
        found = [record for batch in read.batches for record in decode_batch(bytes(batch))]
        assert not found or found[-1].offset + 1 == read.next_offset
        records += [record for record in found if record.offset >= position]
        position = read.next_offset
    return records


def timestamp_types(batches: Sequence[Buffer]) -> set[str]:
    return {check_crc(batch).timestamp_type for batch in batches}
