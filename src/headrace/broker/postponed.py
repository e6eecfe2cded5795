"""Background work that the store does not allow now: replicas are missing, a server is away, a slot has moved.

That is no bug, and the trouble itself is reported where it is noticed. So it is logged in one line when it begins and
one when it is over, not with every partition of every round, and counted.
"""

from __future__ import annotations

import logging
from collections import Counter

from headrace.store.lasting import LastingInRounds
from headrace.wire.errors import KafkaError

log = logging.getLogger(__name__)


class Postponed:
    """One kind of work, done in rounds."""

    def __init__(self, work: str, events: Counter[str]) -> None:
        self._lasting = LastingInRounds(log, f"{work} is postponed", f"{work} goes on", logging.INFO)
        self._events = events

    def by(self, error: KafkaError, **what: str) -> None:
        """Part of the work was not possible."""
        self._events["postponed"] += 1
        self._lasting.met(**what, why=str(error))

    def round_ended(self) -> None:
        """The trouble is over once a round came through."""
        self._lasting.passed()
        self._lasting.round_ended()
