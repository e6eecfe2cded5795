"""How many records a group is behind in topics of the format `stream`, where offsets do not count records.

Kafka's protocol has no field for it. Like a group's identity it is returned by DescribeConfigs as read-only configs of
the group, one per topic; but only if requested by name, because it is counted on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headrace.security.acls import Operation
from headrace.store.cluster.owned.groups import PendingOffset
from headrace.store.redis.errors import LeftToLeader, PartitionGone, StoreError

if TYPE_CHECKING:
    from headrace.broker.access import Access

RECORDS_BEHIND = "headrace.group.records"


async def records_behind(access: Access, group_id: str) -> dict[str, str]:
    """Names of configs and their values: partition -> number of records as JSON, null where it is not known."""
    group = await access.group(Operation.DESCRIBE_CONFIGS, group_id)
    found: dict[str, dict[int, int | None]] = {}
    for place in sorted(row for row in group.rows if not isinstance(row, PendingOffset)):
        committed = access.committed(Operation.DESCRIBE, group, place)
        topic = access.known_topic(Operation.DESCRIBE, place[0]) if committed is not None else None
        if committed is None or topic is None:
            continue
        try:
            if access.broker.policy(topic).is_stream:
                partition = await access.partition(topic, place[1])
                found.setdefault(topic.name, {})[place[1]] = await partition.records_from(committed.offset)
        except (PartitionGone, LeftToLeader):
            continue
        except StoreError:
            found.setdefault(topic.name, {})[place[1]] = None
    return {f"{RECORDS_BEHIND}.{topic}": msgspec.json.encode(behind).decode() for topic, behind in found.items()}
