"""Processes that may hang: requests to them are on their way until clients give up."""

from __future__ import annotations

import math

from headrace.store.cluster.nodes.leases import SeenLease


class HungProcesses:
    """Who else is known, and since when each was seen to be well."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._known: set[str] = set()
        """Their rows outlive their leases."""
        self._held_since: dict[str, float] = {}

    def look(self, seen: list[SeenLease], now_s: float) -> None:
        """Notes who holds a lease."""
        self._known = {one.row.token for one in seen if one.row.state != "gone"}
        held = {one.row.token for one in seen if one.is_held}
        self._held_since = {token: self._held_since.get(token, now_s) for token in held}

    def may_include(self, process: str, now_s: float) -> bool:
        """Whether nobody knows that a process ended, nor has it held its lease for a while."""
        is_well = now_s - self._held_since.get(process, math.inf) >= self._lease_s
        return process in self._known and not is_well
