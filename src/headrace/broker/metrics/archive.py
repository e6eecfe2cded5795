"""The archive's lag in the tiered partitions that this node leads.

Its position is where the lake ends without a break, as the lake itself says: not what an archive claims. Of a lake that
is away nothing is said, and `headrace_tiered_troubles` counts the partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.access import Access
from headrace.broker.metrics.lag import age_s
from headrace.metrics.text import Sample
from headrace.security.caller import system_caller
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.store.partition.base import Partition

log = logging.getLogger(__name__)


class _Position(NamedTuple):
    organisation: str
    partition: Partition
    lake_end: int
    records: int
    seconds: float


async def archive_samples(broker: Broker) -> list[Sample]:
    """One round over the partitions that are open."""
    found: list[_Position] = []
    for organisation in list(broker.store.organisations):
        for partition in Access(broker, system_caller(organisation)).open_partitions():
            if not partition.policy.is_tiered or not broker.store.nodes.leads(partition.topic, partition.number):
                continue
            try:
                found.append(await _position(organisation, partition))
            except KafkaError as error:
                log.debug("archive lag is not known", extra={"partition": repr(partition), "why": str(error)})
    return list(_as_samples(found, broker.options.metrics_names_max, by_partition=broker.options.metrics_partitions))


async def _position(organisation: str, partition: Partition) -> _Position:
    await partition.confirm()
    held = await partition.cold.held(partition.cold_name)
    lake_end = partition.log_start if held is None else max(held.end, partition.log_start)
    records = max(partition.end - lake_end, 0)
    seconds = await age_s(partition, lake_end) if records else 0.0
    return _Position(organisation, partition, lake_end, records, seconds)


def _as_samples(found: list[_Position], most: int, *, by_partition: bool) -> Iterator[Sample]:
    records: dict[tuple[str, str], int] = {}
    seconds: dict[tuple[str, str], float] = {}
    for one in found:
        key = one.organisation, one.partition.topic.name
        records[key] = records.get(key, 0) + one.records
        seconds[key] = max(seconds.get(key, 0.0), one.seconds)
    shown = sorted(records, key=lambda key: -records[key])[:most]
    for key in shown:
        yield Sample("headrace_archive_lag_records", key, records[key])
    for key in shown:
        yield Sample("headrace_archive_lag_seconds", key, seconds[key])
    for one in found if by_partition else ():
        labels = one.organisation, one.partition.topic.name, str(one.partition.number)
        yield Sample("headrace_partition_archive_end_offset", labels, one.lake_end)
