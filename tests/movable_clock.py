"""A clock that a test moves instead of waiting."""

from __future__ import annotations

from headrace.clock import Clock


class MovableClock(Clock):
    """The machine's clocks, ahead by what the test let pass."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_ms = 0

    def advance(self, ms: int) -> None:
        """Lets time pass for everybody who reads this clock."""
        self._ahead_ms += ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def steady_ms(self) -> int:
        return super().steady_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self._ahead_ms / 1000
