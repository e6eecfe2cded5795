"""A cache for slow responses, such as the list of 10,000 topics.

A response is cached for twenty times as long as it took, so no visitor can keep the console busy for more than a
twentieth of the time; a fast response is practically not cached. The cache is per visitor, since rights differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")

_TIMES = 20
_LONGEST_S = 60.0


class KeptAnswers:
    """Cached responses of all visitors, until they expire."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}

    def get(self, visitor: str, what: str, make: Callable[[], T]) -> T:
        """The result of `make`, or a cached one."""
        began_s = self._clock()
        with self._lock:
            known = self._answers.get((visitor, what))
        if known is not None and known[0] > began_s:
            return cast("T", known[1])
        made = make()
        now_s = self._clock()
        until_s = now_s + min(_TIMES * (now_s - began_s), _LONGEST_S)
        with self._lock:
            self._answers = {key: one for key, one in self._answers.items() if one[0] > now_s}
            self._answers[visitor, what] = until_s, made
        return made

    def forget(self, visitor: str) -> None:
        """Drops a visitor's cached responses after a change."""
        with self._lock:
            self._answers = {key: one for key, one in self._answers.items() if key[0] != visitor}
