"""Writes of groups, transactions and shared tables that wait for the broker's min.insync.replicas.

A confirmation is valid for one place of the slot: a server that hung may acknowledge a write after it was replaced, and
what the replicas of the new one have says nothing about that write. Nor do those of a server that a slot is moving from
say anything about a write that was sent on to the server that it is moving to: until it has moved, that is unconfirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.store.redis.errors import StoreError
from headrace.store.redis.shard import Shard
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.redis.topology import Slot, SlotPlace


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

    async def confirm(self, slot: Slot, place: SlotPlace, key: str) -> None:
        """Returns once enough replicas have all acknowledged writes, including that of `key`; else NotConfirmed.

        `place` is that of the slot when the write was sent. Whatever the reason: the write was made, and who made it
        has to know.
        """
        if not (wanted := self.wanted()):
            return
        _check_same(slot, place)
        try:
            have_it = await slot.shard.replicas.have(f"{key}:touched", wanted)
        except KafkaError as error:
            raise NotConfirmed(f" ({error})") from error
        _check_same(slot, place)
        if not have_it:
            raise NotConfirmed


def _check_same(slot: Slot, place: SlotPlace) -> None:
    if slot.place != place:
        raise NotConfirmed(" (another server answers)")
