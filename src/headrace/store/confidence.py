"""Is what I know still true? The one machine that answers this for partitions, topics, groups and the store. Pure.

Everything that a node holds in memory is a cache of Redis, read at some moment. Since that moment one of four things
may have happened, and each leaves a sign that costs nothing to see:

- another server answers (its run id or replication id differs): after a crash or a fail-over the store may have gone
  back in time. The link counts these as its *timeline*.
- the connection was made again: commands in flight had an unknown outcome. The link counts its *generation*.
- another node may have written: nodes came or went, or our lease had run out. The nodes count their *term*.
- a reply did not fit what is known: a refused id, a missing key. Whoever sees that calls `doubt`.

A look at the store makes knowledge as good as the moment at which the look began. If a doubt is raised while a look
is under way, that look does not count: it may have read what was there before. `LEVELS` is the whole rule.

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
    """How good knowledge is, the worst first."""

    UNREAD = 0
    ASTRAY = 1
    STALE = 2
    SHARED = 3
    SURE = 4


class View(NamedTuple):
    """The outside world at one moment, as far as it can make knowledge wrong."""

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
    """Gives the view of now: the same one while nothing changes, because it is asked for with every request."""

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
"""What a change since the last look makes of knowledge, the worst first."""


class Look(NamedTuple):
    """A look that is under way: the moment at which it began."""

    view: View
    doubts: int
    breaks: int


class Confidence:
    """What one cache knows about its own knowledge. `level` is cheap: it is asked before every answer."""

    __slots__ = ("_breaks", "_doubts", "_seen")

    def __init__(self) -> None:
        self._seen: View | None = None
        self._doubts = 0
        self._breaks = 0
        """How often more than catching up became necessary."""

    def level(self, now: View) -> Level:
        """How good knowledge is at this moment."""
        if self._seen is now or self._seen == now:
            return Level.SURE
        if self._seen is None:
            return Level.UNREAD
        for at, (_, level) in enumerate(LEVELS):
            if self._seen[at] != now[at]:
                return level
        return Level.SURE

    @property
    def seen(self) -> View | None:
        """The moment that knowledge is of; None if nothing was looked at."""
        return self._seen

    def begin(self, now: View) -> Look:
        """To be called before the first command of a look is sent."""
        return Look(now, self._doubts, self._breaks)

    def loaded(self, look: Look) -> None:
        """What had to be loaded or compared has been: if the look ends here, the next one only has to catch up."""
        if look.breaks == self._breaks:
            self._seen = look.view._replace(generation=_NEVER)

    def end(self, look: Look) -> bool:
        """The look is done. False if it does not count, because a doubt was raised meanwhile."""
        if look.breaks != self._breaks:
            return False
        if look.doubts != self._doubts:
            # What was read is not nothing: the next look need not load or recover again, only catch up.
            self._seen = look.view._replace(generation=_NEVER)
            return False
        self._seen = look.view
        return True

    def doubt(self) -> None:
        """A reply did not fit what is known: the store has to be looked at again."""
        self._doubts += 1
        if self._seen is not None:
            self._seen = self._seen._replace(generation=_NEVER)

    def lose_track(self) -> int:
        """What is known is about to differ from the store: should `find_track` not be reached, the next look compares.

        Gives what `find_track` wants back.
        """
        self._breaks += 1
        if self._seen is None:
            return _NEVER
        timeline = self._seen.timeline
        self._seen = self._seen._replace(timeline=_NEVER)
        return timeline

    def find_track(self, timeline: int) -> None:
        """Store and knowledge are one again."""
        self._breaks -= 1
        if self._seen is not None:
            self._seen = self._seen._replace(timeline=timeline)

    def forget(self) -> None:
        """Nothing is known any more: the next look loads, unless the one that is under way does."""
        self._seen = None
