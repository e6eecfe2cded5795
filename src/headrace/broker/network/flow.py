"""Flow control: how many bytes requests and responses may hold, over all connections.

When the request budget is used up, connections stop reading until others are done; TCP holds their clients back. Two
dangers are ruled out. Frames still arriving hold budget too, so it may all be held by frames that cannot finish: then
one connection at a time may overdraw. And a small request must get through whatever large ones do: a connection without
requests in flight may always read the beginning of its next one. So requests take at most the budget, one frame, and a
receive buffer per connection.

Responses are counted from reading until they are sent, because a client that does not read keeps them here. When their
budget is used up, a Fetch returns only the minimum.

Time is shared like memory: a request with very many parts yields to others in between.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

_PARTS_PER_TURN = 200


class Waiter(Protocol):
    """Who asks for budget."""

    def budget_freed(self) -> None:
        """Called when it may ask again."""


class ByteBudget:
    """The bytes that requests may take, those still arriving and those being answered."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.arriving_bytes = 0
        self.whole_bytes = 0
        """Held by whole requests. A connection adds and subtracts its own, and then wakes those that wait."""
        self._overdrawn_by: Waiter | None = None
        self.waiters: deque[Waiter] = deque()
        """Connections that stopped reading until there is room."""

    @property
    def is_spent(self) -> bool:
        return self.arriving_bytes + self.whole_bytes >= self.limit_bytes

    def may_grow(self, who: Waiter) -> bool:
        """Whether a frame that is arriving may take more; if not, `who` is called back."""
        if not self.is_spent or self._overdrawn_by is who:
            return True
        if self._may_overdraw:
            self._overdrawn_by = who
            return True
        self.wait(who)
        return False

    def wait(self, who: Waiter) -> None:
        """`who` is called back when there is room."""
        if who not in self.waiters:
            self.waiters.append(who)

    def stop_waiting(self, who: Waiter) -> None:
        if who in self.waiters:
            self.waiters.remove(who)

    def take(self, size_bytes: int) -> None:
        """A part for a frame that arrives."""
        self.arriving_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """The part of a frame that will not arrive."""
        self.arriving_bytes -= size_bytes
        self.wake()

    def frame_is_whole(self, who: Waiter, size_bytes: int) -> None:
        """A frame has arrived: it is a request now."""
        self.arriving_bytes -= size_bytes
        self.whole_bytes += size_bytes
        if self._overdrawn_by is who:
            self._overdrawn_by = None

    def request_done(self, size_bytes: int) -> None:
        """A request was answered, or never begun."""
        self.whole_bytes -= size_bytes
        self.wake()

    def forget(self, who: Waiter) -> None:
        """A connection is gone."""
        if self._overdrawn_by is who:
            self._overdrawn_by = None
        self.stop_waiting(who)
        self.wake()

    @property
    def _may_overdraw(self) -> bool:
        """Waiting for requests to finish would not help: frames that are still arriving hold all of it."""
        return self._overdrawn_by is None and self.arriving_bytes >= self.limit_bytes

    def wake(self) -> None:
        """Calls back those that wait, as far as there is room."""
        while self.waiters and (not self.is_spent or self._may_overdraw):
            self.waiters.popleft().budget_freed()


class AnswerRoom:
    """The bytes that answers may hold from being read to having left."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    @property
    def left_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)

    def take(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes


class Turns:
    """The parts of one request as they are worked on: after every few the event loop is due for others."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = 0

    def is_over(self, parts: int = 1) -> bool:
        """Counts a part, or several; if true, the handler sleeps for a moment (`asyncio.sleep(0)`)."""
        self._parts += parts
        if self._parts < _PARTS_PER_TURN:
            return False
        self._parts = 0
        return True
