"""The readable end of a partition; wakes long polls when it moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition
    from headrace.store.partition.index import Index
    from headrace.store.partition.producers import Producers
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

    def __init__(self) -> None:
        self.watchers: set[Callable[[Partition], None]] = set()

    @property
    def _me(self) -> Partition:
        return cast("Partition", self)

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

    # -- long polls ---------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[Partition], None]) -> None:
        """`watcher` is called when there is more to read, until `unwatch`."""
        self.watchers.add(watcher)

    def unwatch(self, watcher: Callable[[Partition], None]) -> None:
        self.watchers.discard(watcher)

    def tell_watchers(self) -> None:
        """The end moved: wakes the long polls once the new records are readable."""
        if self.policy.replicas and self._me.copies.holds_back():
            return
        if self.watchers:
            self.wake()

    def wake(self) -> None:
        """Wakes the long polls."""
        for watcher in list(self.watchers):
            watcher(self._me)
