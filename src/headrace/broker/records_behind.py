"""How many records a group is behind in its stream topics, where a difference of offsets does not tell.

Kafka's protocol has no field for it. Like a group's identity it is answered by DescribeConfigs, as read-only configs of
the group, one per topic; unlike it only to whoever asks for it by name, because it is counted then and there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headrace.store.errors import PartitionGone
from headrace.store.stream_lag import records_from
from headrace.store.stream_partition import StreamPartition

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

RECORDS_BEHIND = "headrace.group.records"


async def records_behind(broker: Broker, group_id: str) -> dict[str, str]:
    """Names of configs and their values: partition -> number of records as JSON, null where it is not known."""
    coordinator, catalogue = broker.coordinator, broker.store.catalogue
    live = await coordinator.find(group_id)
    found: dict[str, dict[int, int | None]] = {}
    for place in sorted(live.offsets):
        committed, topic = coordinator.valid_offset(live, place), catalogue.by_name.get(place[0])
        if committed is None or topic is None:
            continue
        try:
            partition = await broker.store.partition(topic, place[1])
            if isinstance(partition, StreamPartition):
                found.setdefault(topic.name, {})[place[1]] = await records_from(partition, committed.offset)
        except PartitionGone:
            continue
    return {f"{RECORDS_BEHIND}.{topic}": msgspec.json.encode(behind).decode() for topic, behind in found.items()}
