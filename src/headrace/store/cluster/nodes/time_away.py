"""When this node was away: its lease was not held, and other nodes led its partitions and owned its groups.

They go on for up to a lease after it is back, until they see that its lease is held again.

If the store went back in time meanwhile, only they have what they acknowledged. So a node that comes back this way
to another server first lets them restore it: it counts as starting until they have, or for some leases. But only nodes
that were awake can have led: if all were away together, each is the only one that has what it acknowledged. So it looks
for one that was awake before it takes its lease.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from headrace.store.cluster.nodes.leases import SeenLease

HARDLY_LOST_S: Final = 60.0
"""What happened before that a store hardly loses."""
_LEASES_TO_YIELD: Final = 10
_LEASES_TO_LOOK: Final = 1.5
"""Nodes that are awake have their leases again within one; those that were away no longer say so after one."""


class TimeAway:
    """The last time away."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._ended_at = self._last_term = -math.inf
        """The last term in which others may have led is not known until a lease has passed."""
        self._yields_until = -math.inf
        self._looks_since: float | None = None

    def others_led(self, others: Iterable[SeenLease], now_s: float) -> bool | None:
        """Whether a node that was awake is there. None as long as one may still come."""
        if any(one.was_awake for one in others):
            return True
        if self._looks_since is None:
            self._looks_since = now_s
        return False if now_s - self._looks_since >= self._lease_s * _LEASES_TO_LOOK else None

    @property
    def is_looking(self) -> bool:
        """Whether it is not known yet if others were awake."""
        return self._looks_since is not None

    def end(self, now_s: float, *, to_another_server: bool) -> None:
        """The lease was found not to be held, and is claimed again."""
        self._ended_at, self._last_term, self._looks_since = now_s, math.inf, None
        if to_another_server:
            self._yields_until = now_s + self._lease_s * _LEASES_TO_YIELD

    def has_just_ended(self, now_s: float) -> bool:
        """Whether this node cannot have taken anything over since."""
        return now_s - self._ended_at < self._lease_s

    def is_over(self, now_s: float, term: int) -> bool:
        """Whether others have just stopped for sure, so that a new term begins."""
        is_over = self._last_term == math.inf and now_s - self._ended_at >= self._lease_s
        if is_over:
            self._last_term = term
        return is_over

    def hides(self, term: int, now_s: float) -> bool:
        """Whether others may have led after a term, and only just."""
        return self.covers(term) and now_s - self._ended_at < HARDLY_LOST_S

    def covers(self, term: int) -> bool:
        """Whether others may have led after a term, however long ago."""
        return term <= self._last_term

    def yields(self, now_s: float) -> bool:
        """Whether others are still given time to restore what they acknowledged."""
        return now_s < self._yields_until
