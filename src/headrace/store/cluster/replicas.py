"""How many replicas each server of the store should have: the cap for min.insync.replicas.

Tools habitually create topics with min.insync.replicas=2, and nodes are not copies: on a store without replicas such a
topic would refuse every produce. But a store whose replica just died looks the same, and there refusing is right. So
the store remembers the highest number of replicas seen on any of its servers, unless a setting overrides it
(docs/decisions/030).
"""

from __future__ import annotations

import contextlib
import logging

from headrace.store.options import StoreOptions
from headrace.store.redis.errors import StoreError
from headrace.store.redis.topology import Topology
from headrace.store.shared_work import all_of

log = logging.getLogger(__name__)

FIELD = "replicas"
"""Field of the cluster's hash."""


class MeantReplicas:
    """The number of replicas. The servers are asked only once a topic requires copies."""

    def __init__(self, topology: Topology, key: str, options: StoreOptions) -> None:
        self._topology = topology
        self._key = key
        self._link = topology.slot_of(key).link
        self._is_set = options.store_replicas >= 0
        self.number = max(options.store_replicas, 0)
        self._stored = 0
        self._is_asked_for = False

    def wanted(self, asked: int) -> int:
        """How many of the replicas that a topic asks for count."""
        self._is_asked_for = True
        return min(asked, self.number)

    async def warn(self, topic: str, asked: int) -> None:
        """Says it if a topic that was made or changed asks for more than counts."""
        if self.wanted(asked) < asked:
            await self.keep()
        if (wanted := self.wanted(asked)) < asked:
            log.warning(
                "min.insync.replicas of a topic exceeds the copies of the store and is capped (store_replicas)",
                extra={"topic": topic, "min_insync_replicas": asked + 1, "counts_as": wanted + 1},
            )

    async def load(self) -> None:
        """Loads the stored number, and the counts from the servers' greetings."""
        if self._is_set:
            return
        for shard in self._topology.shards:
            shard.replicas.note_greeting()
        await self._learn()

    async def keep(self) -> None:
        """Looks for more, if anybody wants them."""
        if self._is_set or not self._is_asked_for:
            return
        with contextlib.suppress(StoreError):  # those that can be asked count
            await all_of(shard.replicas.look() for shard in self._topology.shards if shard.link.is_up)
        await self._learn()

    async def _learn(self) -> None:
        self._stored = int(await self._link.call("HGET", self._key, FIELD) or 0)
        seen = max((shard.replicas.most_seen for shard in self._topology.shards), default=0)
        before, self.number = self.number, max(self.number, self._stored, seen)
        if self.number > self._stored:
            await self._link.call("HSET", self._key, FIELD, self.number)
        if self.number > before:
            log.info("the store has replicas: min.insync.replicas is enforced", extra={"replicas": self.number})
