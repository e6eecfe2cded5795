"""The progress of each partition's table compared with its topic. Read-only, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headrace.client import Admin, Cluster
from headrace.client.admin import Missing
from headrace.lake.archive.plan import known_ranges
from headrace.lake.storage.place import Place
from headrace.lake.table.catalogue import OnElsewhere, OnRefused, tables_in
from headrace.lake.table.names import RangeFile
from headrace.lake.table.snapshot import Coverage
from headrace.lake.table.table import TopicTable


class PartitionStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition: offsets [start, end) in the topic (hot) and in the table (cold). None: not there."""

    topic: str
    topic_id: str
    cluster_id: str
    """The cluster that the table belongs to."""
    partition: int
    hot_start: int | None
    hot_end: int | None
    cold_start: int | None
    cold_end: int | None
    lag: int | None
    rows: int
    gaps: list[tuple[int, int]]
    lost: list[tuple[int, int]]
    """Ranges whose files are missing or truncated: unreadable, whatever the table's log says."""
    files: int
    size_bytes: int
    committed: int | None
    """End of the archive's last commit; above `cold_end` if rows were removed from the table since."""
    last_commit_ms: int
    table: str
    is_away: bool = False
    """Whether the broker cannot say the offsets in the topic now."""


OnMissing = Callable[[Missing], object]


def lake_status(
    lake: Place,
    cluster: Cluster,
    topics: Sequence[str] = (),
    refused: OnRefused | None = None,
    elsewhere: OnElsewhere = lambda topic, cluster_id: None,
    missing: OnMissing = lambda found: None,
) -> list[PartitionStatus]:
    """All partitions of all tables, including those of their topics that are not archived yet.

    `missing` is told the partitions of which the broker cannot say the offsets now.
    """
    live = {topic.name: topic for topic in Admin(cluster).list_topics()}
    found: list[PartitionStatus] = []
    for table in tables_in(lake, topics, refused):
        name, topic = table.identity.topic, live.get(table.identity.topic)
        if table.identity.cluster_id != cluster.cluster_id:
            elsewhere(name, table.identity.cluster_id)
        # A topic of the same name with another id is another topic.
        is_live = topic is not None and topic.topic_id == table.identity.topic_id
        indexes = {p.index for p in topic.partitions} if topic is not None and is_live else set()
        hot, away = known_ranges(cluster, name, sorted(indexes))
        missing(away)
        last_ms, lost = table.last_commit().timestamp_ms, table.snapshot.find_lost()
        found += [
            _status(table, p, hot.get(p), lost, last_ms, is_away=(name, p) in away)
            for p in sorted(indexes | set(table.coverage))
        ]
    return found


def _status(
    table: TopicTable,
    partition: int,
    hot: tuple[int, int] | None,
    lost: Sequence[RangeFile],
    last_commit_ms: int,
    *,
    is_away: bool,
) -> PartitionStatus:
    files = [file for file in table.of(partition).files if file not in lost]
    covered = Coverage(files) if files else None
    return PartitionStatus(
        topic=table.identity.topic,
        topic_id=table.identity.topic_id.hex(),
        cluster_id=table.identity.cluster_id,
        partition=partition,
        hot_start=hot[0] if hot else None,
        hot_end=hot[1] if hot else None,
        cold_start=covered.start if covered else None,
        cold_end=covered.end if covered else None,
        lag=max(0, hot[1] - table.position(partition)) if hot else None,
        rows=covered.rows if covered else 0,
        gaps=covered.gaps if covered else [],
        lost=_joined([(file.start, file.end) for file in lost if file.partition == partition]),
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        committed=table.transaction_version(partition),
        last_commit_ms=last_commit_ms,
        table=str(table.place),
        is_away=is_away,
    )


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins adjacent ranges."""
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and joined[-1][1] == start:
            start, _ = joined.pop()
        joined.append((start, end))
    return joined
