"""A tiered topic of a broker with a lake, archived in this process: its first part is in the table alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.client import Admin, Cluster, Producer
from headrace.lake.table.names import folder_of
from headrace.lake.table.table import TopicTable
from headrace.wire.special_times import EARLIEST, LATEST
from tests.broker_process import BrokerProcess, wait_until
from tests.lake.local_archive import archive_locally

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
BROKER: Mapping[str, object] = {
    "tail_cache_bytes": 0,
    "retention_check_interval_ms": 100,
    "index_interval_bytes": 1 << 10,
    "cold_timeout_ms": 10_000,
    "group_initial_rebalance_delay_ms": 0,
}
"""Settings of a broker that leaves records to the lake as soon as it may."""
CONFIGS: Mapping[str, str] = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "0",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
VALUE_BYTES = 100


class TieredTopic:
    """Its records have their number in the partition as their value."""

    def __init__(
        self, broker: BrokerProcess, lake: Path, name: str, partitions: int = 1, configs: Mapping[str, str] = CONFIGS
    ) -> None:
        self.broker, self.lake, self.name = broker, lake, name
        self.partitions = range(partitions)
        with Cluster(broker.address) as cluster:
            self.id = Admin(cluster).create_topic(name, partitions, configs)

    @property
    def folder(self) -> Path:
        """Where the table lies."""
        return self.lake / folder_of(self.name)

    def produce(self, count: int, batch: int = 50, first: int = 0) -> None:
        """So many records into each partition."""
        with Cluster(self.broker.address) as cluster:
            for at in range(first, first + count, batch):
                with Producer(cluster) as producer:
                    for partition in self.partitions:
                        for number in range(at, min(at + batch, first + count)):
                            producer.send(self.name, value_of(number), partition=partition)

    def archive(self) -> TopicTable:
        """Everything that the table does not have yet."""
        return archive_locally(self.broker.address, self.lake, self.name)

    def offsets(self, where: int) -> list[int]:
        """Of each partition."""
        with Cluster(self.broker.address) as cluster:
            wanted = {(self.name, partition): where for partition in self.partitions}
            found = Admin(cluster).list_offsets(wanted)
        return [found[self.name, partition].offset for partition in self.partitions]

    def fill(self, count: int) -> None:
        """So many records into each partition, the first half of which is in the lake alone afterwards."""
        self.produce(count // 2)
        self.archive()
        self.produce(count - count // 2, first=count // 2)
        self.wait_until_local_from(count // 2)

    def wait_until_local_from(self, offset: int) -> None:
        """Returns once nothing below an offset is in Redis."""
        wait_until(
            lambda: min(self.offsets(EARLIEST_LOCAL)) >= offset, f"{self.name} is still in Redis before {offset}"
        )

    def starts(self) -> list[tuple[int, int]]:
        """Log start and local start of each partition."""
        return list(zip(self.offsets(EARLIEST), self.offsets(EARLIEST_LOCAL), strict=True))

    def ends(self) -> list[int]:
        return self.offsets(LATEST)


def value_of(number: int) -> bytes:
    return b"%d " % number + bytes(VALUE_BYTES)
