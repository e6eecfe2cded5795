"""The time that a part may take: a part that is over its budget does the rest of its rows with fewer rounds.

A part that says how many sets of rows it has gives each the same share, and what one leaves is the next one's: so a
lack of time costs all of them a round or two, and not the last ones all but two.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_FEWEST = 2
_FEWEST_OF_SHARES = 4


class _Pace:
    """Of the part that runs."""

    def __init__(self) -> None:
        self._set_clock(float("inf"))

    def _set_clock(self, minutes: float) -> None:
        self._began_s, self._budget_s = time.monotonic(), minutes * 60
        self._sets, self._begun = 0, 0
        self.was_late = False

    def share(self, sets: int) -> None:
        """The time that is left is for so many sets of rows."""
        left_s = self._began_s + self._budget_s - time.monotonic()
        self._began_s, self._budget_s, self._sets, self._begun = time.monotonic(), left_s, sets, 0

    def begin_set(self) -> None:
        self._begun += 1

    def allows(self, rounds_done: int) -> bool:
        """Whether there is time for another round."""
        passed_s = time.monotonic() - self._began_s
        if self._sets:
            # A share in advance: sets are not of one length.
            is_time = passed_s < self._budget_s * min((self._begun + 1) / self._sets, 1)
            is_allowed = is_time or rounds_done < _FEWEST_OF_SHARES
        else:
            is_allowed = passed_s < self._budget_s or rounds_done < _FEWEST
        self.was_late = self.was_late or not is_allowed
        return is_allowed

    @contextlib.contextmanager
    def of(self, minutes: float) -> Iterator[None]:
        self._set_clock(minutes)
        try:
            yield
        finally:
            was_late = self.was_late
            self._set_clock(float("inf"))
            self.was_late = was_late


PACE = _Pace()
