"""Removes old rows from tables, by policy.

Rows are removed in whole files and only from the front, so the rest is one range without holes; the table notes its
start, so `verify` does not take expired rows for lost. The last file of a partition always stays, because it holds the
archive's position. Only `vacuum` deletes the files themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.client import Admin, Cluster
from headrace.lake.table.names import RangeFile
from headrace.lake.table.snapshot import Coverage
from headrace.lake.table.table import TopicTable
from headrace.wire.special_times import EARLIEST

TIERED = "remote.storage.enable"


class Before(msgspec.Struct, frozen=True):
    """The limit: rows below an offset, or before a time."""

    offset: int | None = None
    moment_ms: int | None = None


class Expired(msgspec.Struct, frozen=True):
    """What was removed from a partition, which now begins at `start`."""

    topic: str
    partition: int
    start: int
    rows: int
    files: int
    size_bytes: int


def expire(table: TopicTable, cluster: Cluster | None, before: Before | None, *, dry_run: bool) -> list[Expired]:
    """Removes rows by `before`, and for a tiered topic by its log start, above which nothing is removed."""
    starts = _log_starts(table, cluster) if cluster is not None else None
    old = {
        number: files
        for number, covered in table.coverage.items()
        if (files := _old_files(table, covered, before, starts.get(number) if starts is not None else None))
    }
    if old and not dry_run:
        table.replace([file for files in old.values() for file in files], [], same_rows=False)
    return [
        Expired(
            topic=table.identity.topic,
            partition=number,
            start=files[-1].end,
            rows=sum(file.rows for file in files),
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files),
        )
        for number, files in sorted(old.items())
    ]


def _old_files(
    table: TopicTable, covered: Coverage, before: Before | None, log_start: int | None
) -> Sequence[RangeFile]:
    """The leading files with only old rows."""
    ages_ms = table.snapshot.ages_ms if before is not None and before.moment_ms is not None else {}
    old: list[RangeFile] = []
    for file in covered.files[:-1]:
        if log_start is not None and file.end > log_start:
            break
        if before is None and log_start is None:
            break
        if before is not None and not _is_before(file, before, ages_ms):
            break
        old.append(file)
    return old


def _is_before(file: RangeFile, before: Before, ages_ms: Mapping[str, int]) -> bool:
    if before.offset is not None:
        return file.end <= before.offset
    # A file without rows is as old as its neighbours.
    return before.moment_ms is None or not file.rows or ages_ms.get(file.path, before.moment_ms) < before.moment_ms


def _log_starts(table: TopicTable, cluster: Cluster) -> dict[int, int] | None:
    """The log starts of a tiered topic; None for others, whose tables keep more than the broker."""
    admin, name = Admin(cluster), table.identity.topic
    live = {topic.name: topic for topic in admin.list_topics()}
    topic = live.get(name)
    if topic is None or topic.topic_id != table.identity.topic_id:
        return None
    entries = admin.describe_configs(name, keys=[TIERED])
    if not any(entry.name == TIERED and entry.value == "true" for entry in entries):
        return None
    found = admin.list_offsets({(name, p.index): EARLIEST for p in topic.partitions})
    return {partition: at.offset for (_, partition), at in found.items()}
