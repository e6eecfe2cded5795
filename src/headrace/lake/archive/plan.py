"""What to archive next: which topics, their end offsets, and what their tables lack.

Only named topics are archived; without names, those whose config asks for it.

Offsets between the table's end and the topic's log start were never archived and are gone: a gap. It is never skipped
silently: it stops the partition, or is recorded as accepted.

If several archives run, the one that commits keeps writing until it falls silent. Correctness does not depend on this:
a stale commit is refused. It only keeps the loser from fetching and writing again and again for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headrace.client import Admin, Cluster
from headrace.client.admin import ConfigEntry, Missing, TopicInfo, missing_error
from headrace.lake.table.names import organisation_of_folder
from headrace.lake.table.table import TopicTable
from headrace.wire.errors import KafkaError
from headrace.wire.special_times import EARLIEST, EARLIEST_LOCAL, LATEST

JOINS_BY_CONFIG = "remote.storage.enable"
LOCATOR = "headrace.topic.locator"
CLEANUP, FORMAT = "cleanup.policy", "headrace.format"

Offsets = Mapping[tuple[str, int], int]

QUIET_COMMITS = 2.0


# Topics


class NoTopic(ValueError):
    """A named topic does not exist."""


class OtherOrganisation(ValueError):
    """The login's topics belong to another organisation than the lake's folder."""


class Topics:
    """The topics of an archive. `say` gets the subject of a message, and the message."""

    def __init__(self, cluster: Cluster, names: Sequence[str], say: Callable[[str, str], None], lake: str = "") -> None:
        self._admin, self._names, self._say = Admin(cluster), frozenset(names), say
        self._organisation = organisation_of_folder(lake)
        self._dense: dict[str, bool] = {}
        self.absent: list[str] = []
        """Named topics that did not exist at the last lookup."""

    def look(self) -> list[TopicInfo]:
        """The topics to archive now."""
        found = [topic for topic in self._admin.list_topics() if self._joins(topic)]
        self.absent = sorted(self._names - {topic.name for topic in found})
        if not self._names and not found:
            self._say("none", f"no topic to archive: give some with --topics, or set {JOINS_BY_CONFIG}=true")
        for name in self.absent:
            self._say(f"no {name}", f"there is no topic {name} yet")
        return found

    def _joins(self, topic: TopicInfo) -> bool:
        """Whether a topic is to be archived; its configs are remembered."""
        if topic.name not in self._names if self._names else topic.is_internal:
            return False
        entries = self._admin.describe_configs(topic.name, keys=[JOINS_BY_CONFIG, CLEANUP, FORMAT, LOCATOR])
        self._check_organisation(entries)
        self._dense[topic.name] = is_dense(entries)
        return bool(self._names) or any(e.name == JOINS_BY_CONFIG and e.value == "true" for e in entries)

    def _check_organisation(self, entries: Sequence[ConfigEntry]) -> None:
        """Two organisations never share a folder. Brokers without organisations are not checked."""
        for entry in entries:
            organisation = (entry.value or "").partition("/")[0] if entry.name == LOCATOR else self._organisation
            if organisation != self._organisation:
                raise OtherOrganisation(
                    f"these are topics of the organisation {organisation}, and the folder is for tables of "
                    f"{self._organisation}: give --org {organisation}"
                )

    def is_dense(self, topic: str) -> bool:
        """Whether a hole in the topic means lost records."""
        return self._dense[topic]

    def ends(self, topics: Sequence[TopicInfo]) -> dict[tuple[str, int], int]:
        """The end offsets of the partitions."""
        return self.offsets(topics, LATEST)

    def local_starts(self, topics: Sequence[TopicInfo]) -> dict[tuple[str, int], int]:
        """The first offsets in Redis, which for a tiered topic are after those of the table."""
        try:
            return self.offsets(topics, EARLIEST_LOCAL)
        except KafkaError:  # a broker without tiered storage
            return self.offsets(topics, EARLIEST)

    def offsets(self, topics: Sequence[TopicInfo], where: int) -> dict[tuple[str, int], int]:
        """The offset of each partition for a special timestamp such as EARLIEST."""
        wanted = {(topic.name, p.index): where for topic in topics for p in topic.partitions}
        found = self._admin.list_offsets(wanted, read_committed=True) if wanted else {}
        return {partition: at.offset for partition, at in found.items()}


def is_dense(configs: Iterable[ConfigEntry]) -> bool:
    """Whether a topic's batches follow each other without holes, by its configs."""
    values = {entry.name: entry.value or "" for entry in configs}
    return "compact" not in values.get(CLEANUP, "") and values.get(FORMAT, "log") == "log"


def hot_ranges(cluster: Cluster, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The current offsets [start, end) of a topic's partitions."""
    found, missing = known_ranges(cluster, topic, partitions)
    if missing:
        raise missing_error(missing)
    return found


def known_ranges(cluster: Cluster, topic: str, partitions: Sequence[int]) -> tuple[dict[int, tuple[int, int]], Missing]:
    """The same of those that are known now, and the others."""
    admin = Admin(cluster)
    starts, missing = admin.known_offsets({(topic, p): EARLIEST for p in partitions})
    ends, without_end = admin.known_offsets({(topic, p): LATEST for p in partitions}, read_committed=True)
    missing |= without_end
    known = [p for p in partitions if (topic, p) not in missing]
    return {p: (starts[topic, p].offset, ends[topic, p].offset) for p in known}, missing


def check_topics(cluster: Cluster, names: Sequence[str]) -> None:
    """Raises `NoTopic` if topics are named and none of them exists."""
    there = {topic.name for topic in Admin(cluster).list_topics()}
    if names and there.isdisjoint(names):
        raise NoTopic(f"there is no topic {' and no '.join(names)}")


# Partitions


class Plan(msgspec.Struct, frozen=True):
    """The offsets [start, end) to archive next, after a `gap` to record; or the problem that prevents it."""

    topic: str
    topic_id: bytes
    partition: int
    start: int = 0
    end: int = 0
    gap: tuple[int, int] | None = None
    trouble: str | None = None


def plan_partition(table: TopicTable, partition: int, earliest: int, latest: int, *, accept_gap: bool) -> Plan:
    """The plan for a partition with offsets [earliest, latest)."""
    identity, position = table.identity, table.position(partition)
    nothing = Plan(identity.topic, identity.topic_id, partition)
    if trouble := _table_trouble(table, partition):
        return msgspec.structs.replace(nothing, trouble=trouble)
    if latest < position:
        return msgspec.structs.replace(
            nothing,
            trouble=f"it ends at {latest}, before the end of its table at {position}: the broker's store lost "
            "records or was restored from a backup. Move the table's folder out of the lake, and the archive will "
            "start a new one",
        )
    if earliest > position:
        if not accept_gap:
            return msgspec.structs.replace(
                nothing,
                trouble=f"offsets {position} to {earliest - 1} were deleted before they were archived; "
                f"--accept-gap records that gap and continues at {earliest}",
            )
        return msgspec.structs.replace(nothing, start=earliest, end=max(earliest, latest), gap=(position, earliest))
    return msgspec.structs.replace(nothing, start=position, end=latest)


def _table_trouble(table: TopicTable, partition: int) -> str | None:
    if foreign := table.snapshot.foreign:
        return (
            f"its table has files that the archive did not write, such as {foreign[0]}: `headrace lake verify` shows "
            "what is wrong, and Delta's RESTORE restores an earlier version"
        )
    covered = table.coverage.get(partition)
    for what, ranges in (("lacks", covered.missing()), ("duplicates", covered.doubled())) if covered else ():
        if ranges:
            first, end = ranges[0]
            return (
                f"its table {what} offsets {first} to {end - 1}: use Delta's RESTORE to go back to an earlier version"
            )
    return None


# Other archives


class Standby:
    """Decides for each topic whether to leave it to another archive.

    The archive that lost a commit waits while the table keeps changing without it, and two commit intervals longer.
    """

    def __init__(self, commit_every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet_s = QUIET_COMMITS * commit_every_s
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}

    def lost(self, topic: str, version: int) -> None:
        """Another archive committed this version first: wait for it."""
        self._seen[topic] = (version, self._clock())

    def won(self, topic: str) -> None:
        """Our commit succeeded."""
        self._seen.pop(topic, None)

    def waits(self, topic: str, version: int) -> bool:
        """Whether the other archive still writes the table, or did so recently."""
        if topic not in self._seen:
            return False
        last, since = self._seen[topic]
        if version != last:
            self._seen[topic] = (version, self._clock())
            return True
        return self._clock() - since < self._quiet_s
