"""Steps in a thing's queue. Each decides in its turn, and is notified if that was not possible."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol

import msgspec

from headrace.broker.owned.contract import Decision, Kind, State
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.owned.thing import Thing

log = logging.getLogger(__name__)


class Step(Protocol[State]):
    """One turn."""

    def decide(self, thing: Thing[State]) -> Decision[State] | None:
        """No decision if it is None."""

    def adopted(self, thing: Thing[State]) -> None:
        """The decision counts from now on."""

    def refused(self, thing: Thing[State], error: KafkaError) -> None:
        """The thing is not ours, cannot be read, or the decision could not be stored."""

    def failed(self, error: Exception) -> None:
        """A bug."""


class Asked(msgspec.Struct, eq=False, gc=False):
    """A request, or something else that happened, with the future of its answer."""

    kind: Kind[Any]
    event: Any
    answer: asyncio.Future[Any]

    def decide(self, thing: Thing[Any]) -> Decision[Any] | None:
        return thing.machine.decide(thing.state, self.event, thing.now_ms())

    def adopted(self, thing: Thing[Any]) -> None:
        """Its answer is one of the decision's replies, now or later."""

    def refused(self, thing: Thing[Any], error: KafkaError) -> None:
        if not self.answer.done():
            self.answer.set_result(self.kind.refusal(self.event, error))

    def failed(self, error: Exception) -> None:
        _fail(self.answer, error)


class Looked(Generic[State]):
    """A read of the thing after all earlier events; it may turn into an event.

    The future gives the thing, once such an event is stored.
    """

    __slots__ = ("_future", "_make_event")

    def __init__(
        self, future: asyncio.Future[Thing[State]], make_event: Callable[[Thing[State]], Any] | None = None
    ) -> None:
        self._future = future
        self._make_event = make_event

    def decide(self, thing: Thing[State]) -> Decision[State] | None:
        event = self._make_event(thing) if self._make_event is not None else None
        if event is not None:
            return thing.machine.decide(thing.state, event, thing.now_ms())
        self.adopted(thing)
        return None

    def adopted(self, thing: Thing[State]) -> None:
        if not self._future.done():
            self._future.set_result(thing)

    def refused(self, thing: Thing[State], error: KafkaError) -> None:
        self.failed(error)

    def failed(self, error: Exception) -> None:
        _fail(self._future, error)


_FIRED_AT_ONCE = 500
"""Timers that one decision is about: it holds the event loop, and more than that are due again at once."""


class Fired:
    """Deadlines have passed, unless what came before renewed them. All of them are decided, and stored, together."""

    def decide(self, thing: Thing[Any]) -> Decision[Any] | None:
        thing.has_fired = False
        now_ms = thing.now_ms()
        due = thing.timers.due(now_ms)
        return thing.machine.timers_fired(thing.state, due[:_FIRED_AT_ONCE], now_ms) if due else None

    def adopted(self, thing: Thing[Any]) -> None:
        """Nothing to do: the decision has everything."""

    def refused(self, thing: Thing[Any], error: KafkaError) -> None:
        thing.retry_timers(error)

    def failed(self, error: Exception) -> None:
        log.error("timers failed", exc_info=error)


class Resumed:
    """The process was stopped for a while: requests sent meanwhile may be unread."""

    def decide(self, thing: Thing[Any]) -> Decision[Any] | None:
        return thing.machine.resume(thing.state, thing.now_ms())

    def adopted(self, thing: Thing[Any]) -> None:
        thing.has_stalled = False

    def refused(self, thing: Thing[Any], error: KafkaError) -> None:
        thing.retry_timers(error)

    def failed(self, error: Exception) -> None:
        log.error("deadlines were not renewed", exc_info=error)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        # A future takes no StopIteration.
        future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
