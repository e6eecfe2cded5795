"""Places for unauthenticated connections: a bounded number in all and per address, and which one makes room.

When there is no place left, a connection makes room that has had a second to log in: a good client needs milliseconds.
If none has, an address with more places gives one to an address with fewer, so that a crowd from one address, or from
many, keeps nobody else out. Time in which a client waits for us does not count against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

PATIENCE_S = 1.0


class Waiting(Protocol):
    """A connection before its login."""

    host: str
    since_s: float
    """From when on it keeps others waiting; infinite while it waits for us."""

    def turn_away(self) -> None:
        """Closes it, and has it leave."""


class Places:
    """Who has one."""

    def __init__(self, most: int, most_per_address: int, now_s: Callable[[], float]) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._now_s = now_s
        self._by_host: dict[str, dict[Waiting, None]] = {}
        """In the order in which they came."""
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def all(self) -> list[Waiting]:
        return [one for crowd in self._by_host.values() for one in crowd]

    def take(self, newcomer: Waiting) -> bool:
        """Takes a place for a new connection, if there is one."""
        crowd = self._by_host.get(newcomer.host, {})
        if len(crowd) >= self._most_per_address:
            if not self._make_room(crowd):
                return False
        elif self._taken >= self._most:
            largest = max(self._by_host.values(), key=len)
            if not self._make_room(largest, even_young=len(largest) > len(crowd) + 1):
                return False
        self._by_host.setdefault(newcomer.host, {})[newcomer] = None
        self._taken += 1
        return True

    def leave(self, newcomer: Waiting) -> None:
        """A connection logged in, or left."""
        crowd = self._by_host.get(newcomer.host)
        if crowd is None or newcomer not in crowd:
            return
        del crowd[newcomer]
        self._taken -= 1
        if not crowd:
            del self._by_host[newcomer.host]

    def _make_room(self, crowd: dict[Waiting, None], *, even_young: bool = False) -> bool:
        horizon = self._now_s() - PATIENCE_S
        patient = (one for one in crowd if one.since_s <= horizon)
        leaving = next(patient, next(iter(crowd)) if even_young else None)
        if leaving is None:
            return False
        leaving.turn_away()
        return True
