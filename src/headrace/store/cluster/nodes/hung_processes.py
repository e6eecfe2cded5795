"""Processes that may hang: requests to them are on their way until clients give up.

A dead one's connections broke, one that is well has answered, and clients have sent their requests again within a
lease. To one that hangs they wait for an answer. Which of them led is not asked: a store that went back in time names
another one.
"""

from __future__ import annotations

import math
from typing import Final

from headrace.store.cluster.nodes.leases import SeenLease

_REQUEST_S: Final = 60.0
"""How long clients wait for an answer: librdkafka for a minute, Java's for half of it."""


class HungProcesses:
    """Who else is known, and since when each was seen to be well."""

    def __init__(self, me: str, lease_s: float) -> None:
        self._me = me
        self._lease_s = lease_s
        self._known: set[str] = set()
        """Their rows outlive their leases."""
        self._held_since: dict[str, float] = {}
        self._silent_since: dict[str, float] = {}

    def look(self, seen: list[SeenLease], now_s: float) -> None:
        """Notes who holds a lease."""
        self._known = {one.row.token for one in seen if one.row.state != "gone"} - {self._me}
        held = {one.row.token for one in seen if one.is_held}
        self._held_since = {token: self._held_since.get(token, now_s) for token in held}
        self._silent_since = {token: self._silent_since.get(token, now_s) for token in self._known - held}

    def have_answered(self, began_s: float, now_s: float, are_slow: bool = False) -> bool:
        """Whether all requests that were sent before a moment were answered, or given up by their clients.

        Processes that are well are not slow, unless the caller is to be sure of it.
        """
        passed_s = now_s - began_s
        if passed_s < self._lease_s:
            return False
        if passed_s >= _REQUEST_S:
            return True
        return not are_slow and not any(self._may_answer(one, now_s) for one in self._known)

    def _may_answer(self, process: str, now_s: float) -> bool:
        """Whether a process may still answer what it was sent before it lost its lease, if it did."""
        is_well = now_s - self._held_since.get(process, math.inf) >= self._lease_s
        is_given_up = now_s - self._silent_since.get(process, math.inf) >= _REQUEST_S + self._lease_s
        return not is_well and not is_given_up
