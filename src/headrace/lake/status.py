"""How far each partition's table is, beside what the topic still holds. Reads only, and needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.client import Admin, Cluster
from headrace.client.admin import EARLIEST, LATEST
from headrace.lake.catalogue import tables_in
from headrace.lake.files import Coverage
from headrace.lake.place import Place
from headrace.lake.table import TopicTable


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition: what the topic holds (hot), what the table holds (cold), as [start, end). None: nothing there."""

    topic: str
    topic_id: str
    partition: int
    hot_start: int | None
    hot_end: int | None
    cold_start: int | None
    cold_end: int | None
    lag: int | None
    rows: int
    gaps: list[tuple[int, int]]
    files: int
    size_bytes: int
    committed: int | None
    """Where the last commit of the archive ended; above `cold_end` if rows were taken out of the table since."""
    last_commit_ms: int
    table: str


def lake_status(lake: Place, cluster: Cluster, topics: Sequence[str] = ()) -> list[PartitionStatus]:
    """Each partition of each table, and those of their topics that the table does not have yet."""
    live = {topic.name: topic for topic in Admin(cluster).list_topics()}
    found: list[PartitionStatus] = []
    for table in tables_in(lake, topics):
        name, topic = table.identity.topic, live.get(table.identity.topic)
        # A topic of the same name with another id is another topic.
        is_live = topic is not None and topic.topic_id == table.identity.topic_id
        indexes = {p.index for p in topic.partitions} if topic is not None and is_live else set()
        hot = _hot(cluster, name, sorted(indexes))
        last_ms = table.last_commit().timestamp_ms
        found += [_status(table, p, hot.get(p), last_ms) for p in sorted(indexes | set(table.coverage))]
    return found


def _status(table: TopicTable, partition: int, hot: tuple[int, int] | None, last_commit_ms: int) -> PartitionStatus:
    covered = table.coverage.get(partition)
    files = covered.files if covered else []
    return PartitionStatus(
        topic=table.identity.topic,
        topic_id=table.identity.topic_id.hex(),
        partition=partition,
        hot_start=hot[0] if hot else None,
        hot_end=hot[1] if hot else None,
        cold_start=covered.start if covered else None,
        cold_end=covered.end if covered else None,
        lag=max(0, hot[1] - table.position(partition)) if hot else None,
        rows=covered.rows if covered else 0,
        gaps=(covered or Coverage([])).gaps,
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        committed=table.transaction_version(partition),
        last_commit_ms=last_commit_ms,
        table=str(table.place),
    )


def _hot(cluster: Cluster, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
    if not partitions:
        return {}
    admin = Admin(cluster)
    starts = admin.list_offsets({(topic, p): EARLIEST for p in partitions})
    ends = admin.list_offsets({(topic, p): LATEST for p in partitions}, read_committed=True)
    return {p: (starts[topic, p].offset, ends[topic, p].offset) for p in partitions}
