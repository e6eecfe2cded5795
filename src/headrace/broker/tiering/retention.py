"""Retention of tiered topics; obstacles are reported once.

Several partitions of a topic are handled together: they share a table, and reading it once is enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.postponed import Postponed
from headrace.store.partition.base import Partition
from headrace.store.partition.old_records import Limits, Trouble, TroubleKind
from headrace.store.partition.origin import leads
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_AT_ONCE = 32
_FILLS_PERCENT = 60
"""Memory use of the store above which a warning is logged while records cannot leave Redis."""


class TieredRetention:
    """Applies the retention of tiered partitions; remembers each one's obstacle."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._troubled: dict[tuple[bytes, int], Partition] = {}
        self._behind: dict[tuple[bytes, int], int] = {}
        """Where the lake ended when it was found to be behind."""
        self._told: set[tuple[bytes, TroubleKind]] = set()
        self._told_of_memory = False
        self.postponed = Postponed("tiering", store.events)

    async def apply(self, access: Access, topic: Topic, numbers: Sequence[int]) -> None:
        """The turn of a topic's partitions."""
        for at in range(0, len(numbers), _AT_ONCE):
            turns = (self._apply(access, topic, number) for number in numbers[at : at + _AT_ONCE])
            for outcome in await asyncio.gather(*turns, return_exceptions=True):
                if isinstance(outcome, KafkaError):
                    self.postponed.by(outcome, topic=topic.name)
                elif isinstance(outcome, Exception):
                    log.error("tiering failed", extra={"topic": topic.name}, exc_info=outcome)
        self._troubled = {key: one for key, one in self._troubled.items() if _is_ours(one)}
        self._tell_of_memory()

    async def _apply(self, access: Access, topic: Topic, number: int) -> None:
        partition = await access.partition(topic, number)
        policy = partition.policy  # as it is now: those before it may have waited for the lake
        if not policy.is_tiered:
            return
        limits = Limits(
            policy.retention_ms, policy.retention_bytes, policy.local_retention_ms, policy.local_retention_bytes
        )
        key = (topic.uuid, number)
        trouble = self._if_it_stays(key, await partition.leave_to_lake(limits))
        await partition.save_trouble(trouble.why if trouble else "")
        if trouble is None:
            self._troubled.pop(key, None)
            self._tell_all_clear(topic)
        else:
            self._troubled[key] = partition
            self._tell(topic, partition, trouble)

    def _if_it_stays(self, key: tuple[bytes, int], trouble: Trouble | None) -> Trouble | None:
        """An archive that is behind is at work, unless it is found at the same place again."""
        if trouble is None or trouble.kind is not TroubleKind.BEHIND:
            self._behind.pop(key, None)
            return trouble
        before, self._behind[key] = self._behind.get(key), trouble.held_end
        return trouble if before == trouble.held_end else None

    def _tell(self, topic: Topic, partition: Partition, trouble: Trouble) -> None:
        if (topic.uuid, trouble.kind) in self._told:
            return
        self._told.add((topic.uuid, trouble.kind))
        log.warning(
            "records of a tiered topic cannot leave Redis, which fills up until this is fixed",
            extra={"partition": repr(partition), "why": trouble.why},
        )

    def _tell_all_clear(self, topic: Topic) -> None:
        told = {(uuid, kind) for uuid, kind in self._told if uuid == topic.uuid}
        if told and not any(uuid == topic.uuid for uuid, _ in self._troubled):
            self._told -= told
            log.info("records of a tiered topic leave Redis again", extra={"topic": topic.name})

    def _tell_of_memory(self) -> None:
        """Warns early that the store fills up because records cannot move to the lake."""
        fills = bool(self._troubled) and self._store.memory_percent >= _FILLS_PERCENT
        if fills and not self._told_of_memory:
            log.error(
                "the store is filling up because records cannot leave Redis; produces are rejected at the high mark",
                extra={"partitions": len(self._troubled), "memory_percent": self._store.memory_percent},
            )
        self._told_of_memory = fills


def _is_ours(partition: Partition) -> bool:
    """Whether it is still tiered, and this node's to look after: it was not deleted, and no other node leads it."""
    return not partition.is_gone and partition.policy.is_tiered and leads(partition)
