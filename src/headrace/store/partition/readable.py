"""The readable end of a partition; wakes long polls when it moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition


class Ends(NamedTuple):
    """Where readers stop, all of one moment."""

    high_watermark: int
    stable_end: int
    readable_bytes: int


class Readable:
    """The part of a partition that consumers see the end of."""

    def __init__(self) -> None:
        self.watchers: set[Callable[[Partition], None]] = set()

    @property
    def high_watermark(self) -> int:
        """Where consumers stop: the end, or what enough replicas have where the topic asks for that."""
        return self.ends.high_watermark

    @property
    def stable_end(self) -> int:
        """The last stable offset: before it every transaction has ended, and consumers may read."""
        return self.ends.stable_end

    @property
    def ends(self) -> Ends:
        """All of one look: every Fetch asks for them, of every partition."""
        me = cast("Partition", self)
        if me.policy.replicas:
            return Ends(me.copies.high_watermark, me.copies.stable_end, me.copies.readable_bytes)
        return Ends(me.end, self.ended_up_to, me.index.size_bytes)

    @property
    def ended_up_to(self) -> int:
        """Before it every transaction of the log has ended."""
        me = cast("Partition", self)
        first = me.producers.first_open()
        return me.end if first is None else max(min(first, me.end), me.log_start)

    # -- long polls ---------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[Partition], None]) -> None:
        """`watcher` is called when there is more to read, until `unwatch`."""
        self.watchers.add(watcher)

    def unwatch(self, watcher: Callable[[Partition], None]) -> None:
        self.watchers.discard(watcher)

    def tell_watchers(self) -> None:
        """Told that the end moved: wakes the long polls once what is new may be read."""
        me = cast("Partition", self)
        if not me.policy.replicas or not me.copies.holds_back():
            self.wake()

    def wake(self) -> None:
        """Wakes the long polls."""
        for watcher in list(self.watchers):
            watcher(cast("Partition", self))
