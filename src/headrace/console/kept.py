"""Answers that took long are kept for a while: of a cluster with 10,000 topics nobody has the list made twice a second.

An answer is kept for twenty times as long as it took, so no visitor has more than a twentieth of the time spent on it;
one that comes at once is as good as not kept. Each visitor has its own, since each may see something else.
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
    """Of all visitors, until each is too old."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}

    def get(self, visitor: str, what: str, make: Callable[[], T]) -> T:
        """What `make` gives, or gave not long ago."""
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
        """The visitor changed something."""
        with self._lock:
            self._answers = {key: one for key, one in self._answers.items() if key[0] != visitor}
