"""A clock that a test moves instead of waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headrace.clock import Clock


class MovableClock(Clock):
    """The machine's clocks, ahead by what the test let pass."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_ms = 0
        self._stands_since: float | None = None

    def advance(self, ms: int) -> None:
        """Lets time pass for everybody who reads this clock."""
        self._ahead_ms += ms

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """However long something takes, no time passes meanwhile for who reads this clock."""
        self._stands_since = super().monotonic_s()
        yield
        self._ahead_ms, self._stands_since = self._shift_ms(), None

    def wall_ms(self) -> int:
        return super().wall_ms() + self._shift_ms()

    def steady_ms(self) -> int:
        return super().steady_ms() + self._shift_ms()

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self._shift_ms() / 1000

    def _shift_ms(self) -> int:
        stood_s = 0.0 if self._stands_since is None else super().monotonic_s() - self._stands_since
        return self._ahead_ms - int(stood_s * 1000)
