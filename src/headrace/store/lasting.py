"""Conditions that last: one log line when one begins and one when it is over, however often it is met in between.

A server that rejects writes is met with every request, renewal and partition. What is met again is logged for debugging
only.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable


class Lasting:
    """A condition that one or several may be in; it is over when the last of them is out of it."""

    def __init__(self, log: logging.Logger, begins: str, ends: str, level: int = logging.WARNING) -> None:
        self._log = log
        self._begins, self._ends = begins, ends
        self._level = level
        self._in_it: set[Hashable] = set()

    @property
    def is_met(self) -> bool:
        """Whether somebody is in it."""
        return bool(self._in_it)

    def met(self, who: Hashable = None, **extra: object) -> None:
        """Somebody is in it."""
        self._log.log(logging.DEBUG if self._in_it else self._level, self._begins, extra=extra)
        self._in_it.add(who)

    def over(self, who: Hashable = None) -> None:
        """Somebody is not in it, or no longer."""
        if who in self._in_it:
            self._in_it.remove(who)
            if not self._in_it:
                self._log.log(min(self._level, logging.WARNING), self._ends)


class LastingInRounds:
    """A condition that some work meets and some does not: over after a round in which work passed and none met it."""

    def __init__(self, log: logging.Logger, begins: str, ends: str, level: int = logging.ERROR) -> None:
        self._lasting = Lasting(log, begins, ends, level)
        self._was_met = self._has_passed = False

    def met(self, **extra: object) -> None:
        self._was_met = True
        self._lasting.met(**extra)

    def passed(self) -> None:
        """Some work was done."""
        self._has_passed = True

    def round_ended(self) -> None:
        if self._has_passed and not self._was_met:
            self._lasting.over()
        self._was_met = self._has_passed = False
