"""Progress of long lake commands: on a terminal one line that is updated, elsewhere a log.

It goes to stderr, so that a command's result can be piped.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from headrace.cli.output import count_of, one_line

if TYPE_CHECKING:
    from headrace.lake.archive.round import Round
    from headrace.lake.archive.verify import Proof
    from headrace.lake.replay.replay import Phase

_RATE_OVER_S = 30.0
_AT_MOST_EVERY_S = 0.2


class _Line:
    """A status line that is overwritten on a terminal; elsewhere only permanent messages are printed."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def say(self, sentence: str) -> None:
        """Prints a permanent message."""
        self._clear()
        print(one_line(sentence), file=sys.stderr, flush=True)

    def show(self, words: str) -> None:
        """Updates the status line."""
        if self._is_terminal:
            print(f"\r\x1b[K{one_line(words)}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False


class ArchiveProgress(_Line):
    """Rows, rate, lag and remaining time of an archive."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = self._parsed = self._rejected = 0
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def round(self, done: Round) -> None:
        """A round is over."""
        now = time.monotonic()
        self._parsed += done.typed.rows
        self._rejected += done.typed.rejected
        self._rows += done.rows
        self._recent.append((now, self._rows))
        while len(self._recent) > 2 and now - self._recent[0][0] > _RATE_OVER_S:
            self._recent.popleft()
        since, before = self._recent[0]
        rate = (self._rows - before) / max(now - since, 1e-3)
        left = f", {done.lag / rate:,.0f} s left" if rate > 0 and done.lag else ""
        if self._is_terminal:
            rows = count_of(self._rows, "row")
            self.show(f"{rows} archived, {rate:,.0f} a second, {done.lag:,} to go{left}{_stopped(done)}")
        elif not done.is_last and (done.rows or not done.setbacks):
            self.say(_told(done))

    def done(self) -> None:
        """The archive ends."""
        parsed = f", {self._parsed:,} parsed, {self._rejected:,} rejected" if self._parsed or self._rejected else ""
        self.say(f"{count_of(self._rows, 'row')} archived{parsed}")


def _told(done: Round) -> str:
    """A round as a line of a log."""
    typed = done.typed
    parsed = f", {typed.rows:,} parsed, {typed.rejected:,} rejected" if typed.rows or typed.rejected else ""
    behind = f", {typed.lag:,} to parse" if typed.lag else ""
    rows = count_of(done.rows, "row")
    return f"{rows} archived in {done.seconds:.1f} s, {done.lag:,} to go{parsed}{behind}{_stopped(done)}"


def _stopped(done: Round) -> str:
    """The reason is logged once; the number of stopped partitions in each line."""
    return f", {count_of(done.stopped, 'partition')} stopped" if done.stopped else ""


class VerifyProgress(_Line):
    """How much has been verified."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.0

    def look(self, proof: Proof) -> None:
        """One more file has been read."""
        if time.monotonic() - self._last >= _AT_MOST_EVERY_S:
            self._last = time.monotonic()
            found = count_of(len(proof.findings), "finding")
            self.show(f"{count_of(proof.rows, 'row')} in {count_of(proof.files, 'file')} read, {found}")


class ReplayProgress(_Line):
    """Progress of a replay: records read or sent, and remaining time."""

    def __init__(self) -> None:
        super().__init__()
        self._phase: Phase | None = None
        self._began = self._last = 0.0

    def step(self, phase: Phase, done: int, total: int) -> None:
        """Reports how much of a phase is done."""
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began, self._last = phase, now, 0.0
        if now - self._last < _AT_MOST_EVERY_S:
            return
        self._last = now
        rate = done / max(now - self._began, 1e-3)
        left = f", {(total - done) / rate:,.0f} s left" if done else ""
        what = "reading the target" if phase == "looking" else "sending"
        self.show(f"{what}: {done:,} of {total:,} records, {rate:,.0f} a second{left}")
