"""The readable end of a partition; wakes long polls when it moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition
    from headrace.store.partition.entries import Batches
    from headrace.store.partition.index import Index
    from headrace.store.partition.losses import EpochStart
    from headrace.store.partition.sequences.producers import Producers
    from headrace.store.topic_configs.policy import TopicPolicy


class Ends(msgspec.Struct, frozen=True, gc=False):
    """Where readers stop, all of one moment."""

    high_watermark: int
    stable_end: int
    readable_bytes: int


class Readable(ABC):
    """The part of a partition that consumers see the end of."""

    log_start: int
    end: int
    index: Index
    producers: Producers
    epochs: list[EpochStart]

    def __init__(self) -> None:
        self.watchers: set[Callable[[Partition], None]] = set()

    @property
    def _me(self) -> Partition:
        return self  # type: ignore[return-value]  # a cast is a call, and every append asks

    @property
    @abstractmethod
    def policy(self) -> TopicPolicy:
        """The policy from the topic's current configs."""

    @property
    def high_watermark(self) -> int:
        """The high watermark: the end, or the end confirmed by enough replicas where the topic requires them."""
        return self.ends.high_watermark

    @property
    def stable_end(self) -> int:
        """The last stable offset: before it every transaction has ended, and consumers may read."""
        return self.ends.stable_end

    @property
    def ends(self) -> Ends:
        """All of one look."""
        return self.ends_under(self.policy)

    def ends_under(self, policy: TopicPolicy) -> Ends:
        """The same for who knows the topic's policy: every Fetch asks for them, of every partition."""
        if policy.replicas:
            copies = self._me.copies
            return Ends(copies.high_watermark, copies.stable_end, copies.readable_bytes)
        return Ends(self.end, self.ended_up_to if self.producers.open else self.end, self.index.size_bytes)

    @property
    def ended_up_to(self) -> int:
        """Before it every transaction of the log has ended."""
        first = self.producers.first_open()
        return self.end if first is None else max(min(first, self.end), self.log_start)

    @abstractmethod
    def answered(self, offset: int, max_bytes: int, taken: Batches) -> None:
        """Told that a reader at an offset gets these batches: it will want those behind them."""

    # -- leader epochs, as clients see them ---------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The epoch that is written into batches."""
        return self.epochs[-1].epoch

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises for a client's epoch that is behind or ahead of ours (KIP-320); -1 means that it does not say."""
        if 0 <= epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"Leader epoch {epoch} is behind {self.leader_epoch}.")
        if epoch > self.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"Leader epoch {epoch} is ahead of {self.leader_epoch}.")

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote an offset."""
        return next((one.epoch for one in reversed(self.epochs) if one.start <= offset), self.epochs[0].epoch)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to the one asked for, and where it ends; (-1, -1) if unknown (KIP-320)."""
        if epoch > self.leader_epoch or epoch < self.epochs[0].epoch:
            return -1, -1
        if epoch == self.leader_epoch:
            return epoch, self.end
        for this, following in zip(self.epochs, self.epochs[1:], strict=False):
            if this.epoch <= epoch < following.epoch:
                return this.epoch, following.start
        return -1, -1

    # -- long polls ---------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[Partition], None]) -> None:
        """`watcher` is called when there is more to read, until `unwatch`."""
        self.watchers.add(watcher)

    def unwatch(self, watcher: Callable[[Partition], None]) -> None:
        self.watchers.discard(watcher)

    def tell_watchers(self) -> None:
        """The end moved: wakes the long polls once the new records are readable."""
        me: Any = self  # as it is: a cast is a call, and every append asks
        context = me.context
        topic = context.catalogue.by_uuid.get(me.uuid, me.topic)
        if context.policies.of(topic).replicas and me.copies.holds_back():
            return
        if self.watchers:
            self.wake()

    def wake(self) -> None:
        """Wakes the long polls."""
        me = self._me
        for watcher in list(self.watchers):
            watcher(me)
