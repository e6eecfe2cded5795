"""How the archive reports problems, and how long it waits before the next attempt.

The archive runs for months, and what it depends on does not: brokers restart, disks fill, workers are killed. So a
failure costs a round and a growing pause, and is reported in one sentence, however many partitions it affects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from deltalake.exceptions import DeltaError

from headrace.client import BrokerUnreachable
from headrace.lake.storage.place import reason
from headrace.wire.errors import KafkaError

FIRST_PAUSE_S = 1.0
MOST_PAUSE_S = 60.0
_NAMED = 3
_MOST_SAID = 1000
"""Maximum number of remembered messages, which are not repeated; then all are forgotten."""


class Troubles:
    """Why partitions are stopped, until they are checked again. `say` gets messages for the user."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.stopped: dict[tuple[str, int], str] = {}
        self._said: set[str] = set()
        self._standing: set[str] = set()
        self._before: set[str] = set()

    def look_again(self) -> None:
        """Starts a round. A problem that was gone in the last one is reported again if it returns."""
        self._said -= self._before - self._standing
        self._before, self._standing = self._standing, set()
        self.stopped.clear()

    def stop(self, topic: str, partition: int, why: str) -> None:
        """Reports that a partition is not archived."""
        self._stop([(topic, partition)], f"{topic}-{partition}", why)

    def stop_topic(self, topic: str, partitions: Iterable[int], why: str) -> None:
        """Reports that no partition of a topic is archived."""
        self._stop([(topic, partition) for partition in partitions], topic, why)

    def _stop(self, partitions: Sequence[tuple[str, int]], name: str, why: str) -> None:
        self.stopped |= dict.fromkeys(partitions, why)
        about = f"{name} {why}"
        self._standing.add(about)
        self.say_once(about, f"{name} is not archived: {why}")

    def say_once(self, about: str, sentence: str) -> None:
        """Reports a message, unless one about the same subject was reported before."""
        if about not in self._said:
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said.add(about)
            self.say(sentence)


class Setbacks(msgspec.Struct):
    """Temporary failures: causes, and the topics and partitions they affected."""

    met: dict[str, list[str]] = {}
    error: Exception | None = None
    """The first error that was not just a partition's result."""

    def __bool__(self) -> bool:
        return bool(self.met)

    def add(self, where: str, why: str, error: Exception | None = None) -> None:
        """Adds a topic or partition that failed."""
        self.met.setdefault(why, []).append(where)
        self.error = self.error or error

    def have_met(self, topic: str, partition: int) -> bool:
        """Whether a partition, or its whole topic, failed."""
        return any(not {topic, f"{topic}-{partition}"}.isdisjoint(where) for where in self.met.values())

    def sentence(self) -> str:
        """All failures in one line."""
        return "; ".join(f"{_names(where)}: {why.rstrip('.')}" for why, where in self.met.items())


def _names(where: list[str]) -> str:
    """`a-0, a-1, a-2 and 9 more`."""
    named, others = where[:_NAMED], len(where) - _NAMED
    return f"{', '.join(named)} and {others} more" if others > 0 else ", ".join(named)


def pauses(most_s: float = MOST_PAUSE_S) -> Iterator[float]:
    """Seconds to wait after each consecutive failure."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, most_s)


def broker_answers(error: KafkaError, where: str = "") -> str:
    """A broker's error in words."""
    return f"the broker answers {error.code.name}{where}" + (f": {error.message}" if error.message else "")


def failure_sentence(error: Exception) -> str:
    """The message for a failed round."""
    if isinstance(error, BrokerUnreachable):
        return f"waiting for the broker: {reason(error)}"
    if isinstance(error, KafkaError):
        return broker_answers(error)
    if isinstance(error, OSError | ValueError | DeltaError | RuntimeError):
        return reason(error)
    return f"{type(error).__name__}: {reason(error)}"
