"""Who writes when several archives run: the one that commits, until it falls silent.

Correctness needs none of this: a stale commit is refused. It only keeps the loser from fetching and writing again and
again for nothing. The one that lost waits for as long as the table moves without it, and two commits' time more.
"""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_COMMITS = 2.0


class Standby:
    """For each topic, whether to leave it to another archive."""

    def __init__(self, commit_every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet_s = QUIET_COMMITS * commit_every_s
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}

    def lost(self, topic: str, version: int) -> None:
        """Another archive was first, with this version of the table: wait for it."""
        self._seen[topic] = (version, self._clock())

    def won(self, topic: str) -> None:
        """Our commit was taken."""
        self._seen.pop(topic, None)

    def waits(self, topic: str, version: int) -> bool:
        """Whether the other archive still moves the table, or did so a moment ago."""
        if topic not in self._seen:
            return False
        last, since = self._seen[topic]
        if version != last:
            self._seen[topic] = (version, self._clock())
            return True
        return self._clock() - since < self._quiet_s
