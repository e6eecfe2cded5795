"""A topic archived in this process, by the parts that Spark's tasks and the driver use: for tests of its table."""

from __future__ import annotations

from pathlib import Path

from headrace.client import Admin, Cluster
from headrace.lake.archive.task import ArchiveTask, archive_range
from headrace.lake.connecting import Connecting
from headrace.lake.fetching import OffsetRange
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.snapshot import Identity
from headrace.lake.table.table import TopicTable
from headrace.wire.special_times import EARLIEST, LATEST


def archive_locally(address: str, lake: Path, topic: str) -> TopicTable:
    """Everything that the topic holds and the table does not, in one commit a file."""
    with Cluster(address) as cluster:
        admin = Admin(cluster)
        found = admin.describe_topic(topic)
        wanted = {(topic, p.index): EARLIEST for p in found.partitions}
        starts = {p: at.offset for (_, p), at in admin.list_offsets(wanted).items()}
        ends = {p: at.offset for (_, p), at in admin.list_offsets(dict.fromkeys(wanted, LATEST)).items()}
        assert cluster.cluster_id is not None
        table = open_or_create(place_of(lake), Identity(cluster.cluster_id, topic, found.topic_id), starts)
    for partition, end in ends.items():
        while (start := table.position(partition)) < end:
            offsets = OffsetRange(topic, partition, start, end)
            task = ArchiveTask(offsets, found.topic_id, table.place, 1 << 30)
            outcome = archive_range(Connecting(address), task)
            assert outcome.written is not None, outcome.trouble
            table.commit([outcome.written])
    return table
