"""Writes of groups, transactions and shared tables that wait for the broker's min.insync.replicas."""

from __future__ import annotations

from collections.abc import Callable

from headrace.store.redis.errors import StoreError
from headrace.store.redis.shard import Shard
from headrace.wire.errors import ErrorCode, KafkaError


class NotConfirmed(StoreError):
    """The write was made, but too few replicas confirmed it."""

    def __init__(self, why: str = "") -> None:
        super().__init__(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"too few replicas have a write{why}")


class CopiedWrites:
    """Asked before and after such a write."""

    def __init__(self) -> None:
        self.wanted: Callable[[], int] = lambda: 0
        """The replicas that each needs."""

    async def check(self, shard: Shard) -> None:
        """NotEnoughReplicas if it is known beforehand that too few would have it."""
        if wanted := self.wanted():
            await shard.replicas.check(wanted)

    async def confirm(self, shard: Shard, key: str) -> None:
        """Returns once enough replicas have all acknowledged writes, including that of `key`; else NotConfirmed.

        Whatever the reason: the write was made, and who made it has to know.
        """
        if not (wanted := self.wanted()):
            return
        try:
            have_it = await shard.replicas.have(f"{key}:touched", wanted)
        except KafkaError as error:
            raise NotConfirmed(f" ({error})") from error
        if not have_it:
            raise NotConfirmed
