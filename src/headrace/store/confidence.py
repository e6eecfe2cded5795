"""Is a cache still true? The one machine that answers this for partitions, topics, groups and the store. Pure.

Everything a node holds in memory is a cache of Redis, read at some moment. Since then one of four things may have
happened, and each leaves a sign that is free to check:

- another server answers (its run id or replication id differs): after a crash or a failover the store may have gone
  back in time. The link counts these as its *timeline*.
- the connection was re-established: commands in flight had an unknown outcome. The link counts its *generation*.
- another node may have written: nodes came or went, or our lease had expired. The nodes count their *term*.
- a reply contradicted the cache: a rejected id, a missing key. Whoever sees that calls `doubt`.

A *look* is a read of the store; it makes the cache valid as of the moment the look began. If a doubt is raised while a
look is in progress, the look does not count: it may have read an older state. `LEVELS` is the whole rule.

| level   | sign since the last look | what a look has to do                          |
|---------|--------------------------|------------------------------------------------|
| UNREAD  | there was no look        | load everything                                |
| ASTRAY  | timeline                 | compare, write back what was lost, catch up    |
| STALE   | generation, or a doubt   | catch up                                       |
| SHARED  | term                     | catch up; what we own has to be taken again    |
| SURE    | none                     | nothing                                        |
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

_NEVER = -1


class Level(IntEnum):
    """How far a cache can be trusted, the worst first."""

    UNREAD = 0
    ASTRAY = 1
    STALE = 2
    SHARED = 3
    SURE = 4


class View(NamedTuple):
    """The signs at one moment."""

    timeline: int
    generation: int
    term: int = 0


class _Counter(Protocol):
    @property
    def timeline(self) -> int: ...

    @property
    def generation(self) -> int: ...


class _Terms(Protocol):
    @property
    def term(self) -> int: ...


class Outlook:
    """The current view. It is the same object until something changes: every request reads it."""

    __slots__ = ("_link", "_nodes", "_view")

    def __init__(self, link: _Counter, nodes: _Terms) -> None:
        self._link = link
        self._nodes = nodes
        self._view = View(_NEVER, _NEVER, _NEVER)

    @property
    def view(self) -> View:
        # The timeline changes only with a new connection.
        view = self._view
        if view.generation != self._link.generation or view.term != self._nodes.term:
            view = self._view = View(self._link.timeline, self._link.generation, self._nodes.term)
        return view


LEVELS = (("timeline", Level.ASTRAY), ("generation", Level.STALE), ("term", Level.SHARED))
"""The level after a change since the last look, the worst first."""


class Look(NamedTuple):
    """A look in progress: the moment at which it began."""

    view: View
    doubts: int
    breaks: int


class Confidence:
    """How far one cache can be trusted. `level` is cheap: it is checked before every answer."""

    __slots__ = ("_breaks", "_doubts", "seen")

    def __init__(self) -> None:
        self.seen: View | None = None
        """The view that the cache is valid for; None before the first look."""
        self._doubts = 0
        self._breaks = 0
        """How often more than catching up became necessary."""

    def level(self, now: View) -> Level:
        """How far the cache can be trusted now."""
        if self.seen is now or self.seen == now:
            return Level.SURE
        if self.seen is None:
            return Level.UNREAD
        for at, (_, level) in enumerate(LEVELS):
            if self.seen[at] != now[at]:
                return level
        return Level.SURE

    def begin(self, now: View) -> Look:
        """Call this before the first command of a look is sent."""
        return Look(now, self._doubts, self._breaks)

    def loaded(self, look: Look) -> None:
        """Loading and comparing are done: if the look ends here, the next one only has to catch up."""
        if look.breaks == self._breaks:
            self.seen = look.view._replace(generation=_NEVER)

    def end(self, look: Look) -> bool:
        """The look is done. False if a doubt raised meanwhile makes it not count."""
        if look.breaks != self._breaks:
            return False
        if look.doubts != self._doubts:
            # It was not in vain: the next look need not load or recover again, only catch up.
            self.seen = look.view._replace(generation=_NEVER)
            return False
        self.seen = look.view
        return True

    def doubt(self) -> None:
        """A reply contradicted the cache: the store has to be read again."""
        self._doubts += 1
        if self.seen is not None:
            self.seen = self.seen._replace(generation=_NEVER)

    def lose_track(self) -> int:
        """Cache and store are about to differ: unless `find_track` is reached, the next look compares them.

        Returns the argument for `find_track`.
        """
        self._breaks += 1
        if self.seen is None:
            return _NEVER
        timeline = self.seen.timeline
        self.seen = self.seen._replace(timeline=_NEVER)
        return timeline

    def find_track(self, timeline: int) -> None:
        """Cache and store agree again."""
        self._breaks -= 1
        if self.seen is not None:
            self.seen = self.seen._replace(timeline=timeline)

    def forget(self) -> None:
        """The cache is empty: the next look loads, unless one in progress does."""
        self.seen = None
