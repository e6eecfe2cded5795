"""The time that a part may take: a part that is over its budget does the rest of its rows with fewer rounds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_FEWEST = 2


class _Pace:
    """Of the part that runs."""

    def __init__(self) -> None:
        self._ends_s = float("inf")
        self.was_late = False

    def allows(self, rounds_done: int) -> bool:
        """Whether there is time for another round."""
        if rounds_done < _FEWEST or time.monotonic() < self._ends_s:
            return True
        self.was_late = True
        return False

    @contextlib.contextmanager
    def of(self, minutes: float) -> Iterator[None]:
        self._ends_s, self.was_late = time.monotonic() + minutes * 60, False
        try:
            yield
        finally:
            self._ends_s = float("inf")


PACE = _Pace()
