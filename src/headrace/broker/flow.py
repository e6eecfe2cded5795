"""Flow control: one budget of bytes for all requests under way.

A connection that finds the budget spent stops reading until others are done; TCP makes its client wait. Frames that
are still arriving hold budget too, so a danger remains: all of it held by frames that cannot finish. Then one
connection at a time may overdraw. So the memory of requests is at most the budget and one frame.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Waiter(Protocol):
    """Who asks for budget."""

    def budget_freed(self) -> None:
        """Called when it may ask again."""


class ByteBudget:
    """The bytes that requests may take, those still arriving and those being answered."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.requests = 0
        """Whole requests that hold a part and will give it back by themselves."""
        self._overdrawn_by: Waiter | None = None
        self._waiters: deque[Waiter] = deque()

    @property
    def is_spent(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def may_grow(self, who: Waiter) -> bool:
        """Whether a frame that is arriving may take more; if not, `who` is called back."""
        if not self.is_spent or self._overdrawn_by is who:
            return True
        if self.requests == 0 and self._overdrawn_by is None:
            self._overdrawn_by = who
            return True
        if who not in self._waiters:
            self._waiters.append(who)
        return False

    def take(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Returns a part, and lets those who wait ask again."""
        self.used_bytes -= size_bytes
        self._wake()

    def frame_is_whole(self, who: Waiter) -> None:
        """A frame has arrived: it is a request now."""
        self.requests += 1
        if self._overdrawn_by is who:
            self._overdrawn_by = None

    def request_done(self, size_bytes: int) -> None:
        self.requests -= 1
        self.give(size_bytes)

    def forget(self, who: Waiter) -> None:
        """A connection is gone."""
        if self._overdrawn_by is who:
            self._overdrawn_by = None
        if who in self._waiters:
            self._waiters.remove(who)
        self._wake()

    def _wake(self) -> None:
        while self._waiters and (not self.is_spent or (self.requests == 0 and self._overdrawn_by is None)):
            self._waiters.popleft().budget_freed()
