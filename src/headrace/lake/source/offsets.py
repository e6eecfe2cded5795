"""Plans the offsets of a query: finds partitions, resolves bounds, limits a trigger, splits ranges into tasks.

Rule kept here: plans use the brokers' current offsets, and a partition that has disappeared, or ends before what was
read of it, means lost data. Separate from data_source.py because none of this needs Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from headrace.client import Admin
from headrace.lake.connecting import OptionError
from headrace.lake.fetching import OffsetRange
from headrace.lake.source.losses import Losses
from headrace.lake.source.options import Bound, SourceOptions
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

Positions = dict[TopicPartition, int]

_NONE = -1
"""ListOffsets' answer if no record is that late."""


class QueryOffsets:
    """The starts and ends of a query's partitions."""

    def __init__(self, admin: Admin, options: SourceOptions) -> None:
        self.admin = admin
        self.options = options
        self.losses = Losses(are_errors=options.fail_on_data_loss)

    def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        """The partitions that the options select now; a missing topic is an error, or has no partitions."""
        options = self.options
        if options.subscribe_pattern is not None:
            matches = re.compile(options.subscribe_pattern).fullmatch
            topics = [t for t in self.admin.list_topics() if matches(t.name) and not t.is_internal]
            return [(topic.name, p.index) for topic in topics for p in topic.partitions]
        found: list[TopicPartition] = []
        for name in options.subscribe or sorted({topic for topic, _ in options.assign}):
            try:
                found += [(name, p.index) for p in self.admin.describe_topic(name).partitions]
            except KafkaError as error:
                if not (missing_ok and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise
        if options.assign:
            absent = [f"{topic}-{index}" for topic, index in options.assign if (topic, index) not in found]
            if absent and not missing_ok:
                raise OptionError(f"Option 'assign' names {', '.join(absent)}, which does not exist.")
            found = [partition for partition in options.assign if partition in found]
        return found

    def starts(self, partitions: Iterable[TopicPartition], default: int) -> Positions:
        """The starting offsets."""
        return self._resolve(self.options.starting or Bound("offset", default), list(partitions), "starting")

    def ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The ending offsets of a batch."""
        return self._resolve(self.options.ending or Bound("offset", LATEST), list(partitions), "ending")

    def latest(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The ends of the partitions; with read_committed, the last stable offsets."""
        return self._list(dict.fromkeys(partitions, LATEST))

    def earliest(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The first offsets still in the partitions."""
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def _list(self, wanted: Mapping[TopicPartition, int]) -> Positions:
        if not wanted:
            return {}
        answers = self.admin.list_offsets(wanted, read_committed=self.options.connecting.read_committed)
        return {partition: answers[partition].offset for partition in wanted}

    def _resolve(self, bound: Bound, partitions: list[TopicPartition], role: str) -> Positions:
        wanted = dict.fromkeys(partitions, bound.everywhere) if bound.everywhere is not None else dict(bound.each)
        if set(wanted) != set(partitions):
            listed = _names(set(partitions) ^ set(wanted))
            raise OptionError(f"Each partition needs exactly one {role} {bound.kind}: {listed}.")
        numbers = {partition: at for partition, at in wanted.items() if at is not None}
        if bound.kind == "offset":
            special = {EARLIEST: EARLIEST, LATEST: LATEST}
            return numbers | self._list({p: special[at] for p, at in numbers.items() if at < 0})
        found = self._list(numbers)
        late = [partition for partition, at in found.items() if at == _NONE]
        if late and not bound.latest_if_none:
            raise OptionError(f"All records are older than the starting timestamp in {_names(late)}.")
        return found | self.latest(late)


def admit(starts: Positions, ends: Positions, limit: int) -> Positions:
    """Ends for at most `limit` offsets in total: each partition gets one, the rest is shared in proportion.

    If there are more partitions than offsets, those with the most go first.
    """
    sizes = {partition: ends[partition] - starts[partition] for partition in ends}
    waiting = sorted((p for p in sizes if sizes[p] > 0), key=lambda p: (-sizes[p], p))
    total = sum(sizes[partition] for partition in waiting)
    if total <= limit:
        return dict(ends)
    shares = {partition: int(index < limit) for index, partition in enumerate(waiting)}
    rest = limit - sum(shares.values())
    for partition in waiting:
        shares[partition] += rest * (sizes[partition] - 1) // total
    # The remainder from rounding down, at most one offset per partition.
    left = limit - sum(shares.values())
    for partition in waiting:
        more = min(left, sizes[partition] - shares[partition])
        shares[partition] += more
        left -= more
    return ends | {partition: starts[partition] + share for partition, share in shares.items()}


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """The non-empty ranges in pieces: at least this many in total, none with more than this many offsets."""
    held = [each for each in ranges if each.stop > each.start]
    total = sum(each.stop - each.start for each in held)
    pieces: list[OffsetRange] = []
    for each in held:
        size = each.stop - each.start
        count = 1
        if min_partitions is not None and min_partitions > len(held):
            count = -(-min_partitions * size // total)
        if max_records is not None:
            count = max(count, -(-size // max_records))
        count = min(count, size)
        cuts = [each.start + size * index // count for index in range(count + 1)]
        pieces += [OffsetRange(each.topic, each.partition, *cut) for cut in pairwise(cuts)]
    return pieces


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
