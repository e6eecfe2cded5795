"""What tests of the archive share: running it, where its tables are, and what the topic holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client import Cluster, Reader
from headrace.client.admin import Admin
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings, Step
from headrace.lake.storage.place import place_of
from headrace.lake.table.names import folder_of
from headrace.wire.special_times import EARLIEST
from tests.lake.other_reader import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive_once(
    spark: SparkSession,
    address: str,
    lake: Path,
    topic: str,
    *,
    accept_gap: bool = False,
    commit_bytes: int = 128 << 20,
    at_step: Callable[[Step], None] = lambda step: None,
) -> tuple[Archive, list[str]]:
    """Runs the archive to the topic's end; the archive, and what it said."""
    said: list[str] = []
    with Cluster(address) as cluster:
        settings = ArchiveSettings(place_of(lake), [topic], accept_gap, commit_bytes=commit_bytes)
        archive = Archive(spark, cluster, settings, say=said.append, at_step=at_step)
        archive.run_once()
    return archive, said


def table_of(lake: Path, topic: str) -> Path:
    return lake / folder_of(topic)


def records_of(address: str, topic: str) -> list[Row]:
    """Partition, offset and value of all records of a topic."""
    with Cluster(address) as cluster:
        partitions = Admin(cluster).describe_topic(topic).partitions
        start = {(topic, p.index): EARLIEST for p in partitions}
        return sorted((p, record.offset, record.value) for _, p, record in Reader(cluster).read(start))
