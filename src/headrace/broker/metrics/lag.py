"""Lag of this node's groups, in records and in seconds.

In the format `log` lag is a difference of offsets; in `stream`, where offsets are times, records are counted, or left
out where that would cost too much. Seconds are the age of the oldest unread record, by its batch's first timestamp; for
a position that has left Redis, that of the oldest record in Redis, which is less.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from headrace.broker.access import Access
from headrace.metrics.text import Sample
from headrace.security.acls import Operation
from headrace.security.caller import system_caller
from headrace.store.cluster.owned.groups import PendingOffset
from headrace.wire.batch import read_header
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.groups.classic import Group
    from headrace.store.partition.base import Partition

log = logging.getLogger(__name__)

_NO_RECORD: Final = -1

Position = tuple[bytes, int, int]
"""Topic id, partition, offset."""


class GroupLag:
    """The last round over the groups that this node coordinates."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._times: dict[Position, int] = {}
        """Timestamps of records at current positions, so that an idle group is not read again."""

    async def look(self) -> list[Sample]:
        """One round."""
        states: Counter[tuple[str, str]] = Counter()
        shown: list[tuple[str, Group]] = []
        lags: dict[tuple[str, str, str], tuple[int, float]] = {}
        times, self._times = self._times, {}
        for organisation in list(self._broker.store.organisations):
            access = Access(self._broker, system_caller(organisation))
            groups, _ = await access.groups(Operation.DESCRIBE)
            states.update((organisation, str(group.state)) for group in groups)
            for group in islice(groups, max(0, self._broker.options.metrics_names_max - len(shown))):
                shown.append((organisation, group))
                with contextlib.suppress(KafkaError):  # its server is away
                    for topic, lag in (await self._lags(access, group.group_id, times)).items():
                        lags[organisation, group.group_id, topic] = lag
        return list(_as_samples(states, shown, lags))

    async def _lags(self, access: Access, group_id: str, times: dict[Position, int]) -> dict[str, tuple[int, float]]:
        """Topic -> records and seconds; a number of records below 0 is not known."""
        group = await access.group(Operation.DESCRIBE, group_id)
        found: dict[str, tuple[int, float]] = {}
        for place in sorted(row for row in group.rows if not isinstance(row, PendingOffset)):
            committed = access.committed(Operation.DESCRIBE, group, place)
            topic = access.known_topic(Operation.DESCRIBE, place[0])
            if committed is None or topic is None or place[1] >= topic.partitions:
                continue
            try:
                partition = await access.partition(topic, place[1])
                records, seconds = await self._lag(partition, committed.offset, times)
            except KafkaError as error:
                log.debug("lag is not known", extra={"partition": f"{topic.name}-{place[1]}", "why": str(error)})
                continue
            sum_records, most_seconds = found.get(topic.name, (0, 0.0))
            is_known = records is not None and sum_records >= 0
            found[topic.name] = (sum_records + (records or 0) if is_known else -1, max(most_seconds, seconds))
        return found

    async def _lag(self, partition: Partition, offset: int, times: dict[Position, int]) -> tuple[int | None, float]:
        await partition.confirm()
        start = max(offset, partition.log_start)
        if start >= partition.end:
            return 0, 0.0
        if partition.policy.is_stream:
            records = await partition.records_from(start)
        else:
            records = partition.end - start
        if records == 0:
            return 0, 0.0
        position = partition.topic.uuid, partition.number, start
        if (time_ms := times.get(position)) is None:
            time_ms = await _time_at(partition, max(start, partition.local_start))
        self._times[position] = time_ms
        return records, _since(partition, time_ms)


async def age_s(partition: Partition, offset: int) -> float:
    """How long ago the record at an offset, or the next one behind it, was made; 0 if it has no time."""
    return _since(partition, await _time_at(partition, max(offset, partition.local_start)))


def _since(partition: Partition, time_ms: int) -> float:
    return max(partition.now_ms() - time_ms, 0) / 1000 if time_ms >= 0 else 0.0


async def _time_at(partition: Partition, offset: int) -> int:
    """The time of the batch at an offset, or the next one behind it."""
    taken = partition.read_cached(offset, 1, True)
    if taken is None:
        taken = await partition.read(offset, 1, True)
    return read_header(taken.chunks[0]).base_timestamp if taken.chunks else _NO_RECORD


def _as_samples(
    states: Counter[tuple[str, str]],
    groups: list[tuple[str, Group]],
    lags: dict[tuple[str, str, str], tuple[int, float]],
) -> Iterator[Sample]:
    for key, count in sorted(states.items()):
        yield Sample("headrace_groups", key, count)
    for organisation, group in groups:
        yield Sample("headrace_group_members", (organisation, group.group_id), len(group.members))
    for organisation, group in groups:
        yield Sample("headrace_group_generation", (organisation, group.group_id), group.generation)
    for labels, (records, _) in lags.items():
        if records >= 0:
            yield Sample("headrace_group_lag_records", labels, records)
    for labels, (_, seconds) in lags.items():
        yield Sample("headrace_group_lag_seconds", labels, seconds)
