"""Background work that the store does not allow now: replicas are missing, a server is away, a slot has moved.

That is no bug, and the trouble itself is reported where it is noticed. So it is logged in one line when it begins and
one when it is over, not with every partition of every round, and counted.
"""

from __future__ import annotations

import logging
from collections import Counter

from headrace.wire.errors import KafkaError

log = logging.getLogger(__name__)


class Postponed:
    """One kind of work, done in rounds."""

    def __init__(self, work: str, events: Counter[str]) -> None:
        self._work = work
        self._events = events
        self._is_told = False
        self._in_this_round = 0

    def by(self, error: KafkaError, **what: str) -> None:
        """Part of the work was not possible."""
        self._events["postponed"] += 1
        self._in_this_round += 1
        log.log(
            logging.DEBUG if self._is_told else logging.INFO,
            f"{self._work} is postponed",
            extra={**what, "why": str(error)},
        )
        self._is_told = True

    def round_ended(self) -> None:
        """The trouble is over once a round came through."""
        if self._is_told and not self._in_this_round:
            self._is_told = False
            log.info(f"{self._work} goes on")
        self._in_this_round = 0
