"""The straight road of a Fetch: passes over memory with waits in between, without a task.

A consumer at the tail is served like this all the time. As soon as a pass needs the store, or finds something to
complain of, the request goes on in a task, where it is (`handlers/fetch.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.fetching.fetch import Fetch, FetchedPart
from headrace.broker.fetching.waiting import LongPoll, SeenEnds
from headrace.broker.handlers import fetch as other_road
from headrace.broker.quotas.throttling import is_timed
from headrace.security.quotas import CONSUMER
from headrace.wire.errors import KafkaError
from headrace.wire.fetch_answer import FIRST_VERSION, fetch_answer
from headrace.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.broker.dispatch import Dispatch
    from headrace.broker.network.requests import RequestSlot
    from headrace.wire.codec import Pieces

_PARTS_MAX = 200
"""More take the other road, which lets others have their turn."""


def begin(call: Call, request: FetchRequest, dispatch: Dispatch) -> bool:
    """Answers, or waits for records; False, without effect, if the request has to be refused."""
    if call.connection.is_closing or call.must_pause(CONSUMER):
        return False
    try:
        session = other_road.open_session(call, request)
    except KafkaError:
        return False
    now_s = call.connection.now_s()
    _StraightFetch(Fetch(call, request, session, now_s), dispatch).run(call.connection.answered)
    return True


class _StraightFetch:
    """One request on its way."""

    __slots__ = ("_call", "_dispatch", "_fetch", "_held_ns", "_is_over", "_is_timed", "_poll")

    def __init__(self, fetch: Fetch, dispatch: Dispatch) -> None:
        self._call = call = fetch.call
        self._dispatch = dispatch
        self._fetch = fetch
        self._is_timed = call.broker.quotas.is_any and is_timed(call)
        self._held_ns = 0
        """How long it held the event loop, where that is charged."""
        self._poll: LongPoll | None = None
        self._is_over = False

    def _go_on(self) -> None:
        """At the end of the turn in which something woke it: all that came in this turn is there."""
        if not self._is_over:
            self.run(self._call.connection.answer_now)

    def run(self, answer: Callable[[RequestSlot, Pieces | None], None]) -> None:
        pieces: Pieces | None = None
        try:
            began_ns = time.perf_counter_ns() if self._is_timed else 0
            found = self._pass()
            if began_ns:
                self._held_ns += time.perf_counter_ns() - began_ns
            if found is None:
                return
            pieces = self._answer(found)
        except Exception:
            self._call.connection.failed(self._call.slot)
        self._is_over_now()
        answer(self._call.slot, pieces)

    def _pass(self) -> list[FetchedPart] | None:
        """The answer; None if the request waits or continues in a task."""
        fetch, call = self._fetch, self._call
        found = fetch.pass_in_memory() if len(fetch.wanted) <= _PARTS_MAX else None
        if found is None:
            self._is_over_now()
            work = self._dispatch.answer_with(call, partial(other_road.go_on, fetch), self._held_ns)
            call.connection.go_on_in_task(call.slot, work)
            return None
        missing_bytes = fetch.missing_bytes(found)
        if missing_bytes <= 0 or not found or fetch.deadline <= call.connection.now_s():
            return found
        seen = SeenEnds()
        seen.note_each(found)
        call.slot.on_cancel = self._cancelled
        self._poll = LongPoll(fetch, seen, missing_bytes, self._woken)
        self._poll.begin(has_just_looked=True)
        return None

    def _woken(self) -> None:
        self._call.connection.end_of_turn.add(self._go_on)

    def _cancelled(self) -> None:
        """The client has gone."""
        if not self._is_over:
            self._is_over_now()
            self._call.connection.answered(self._call.slot, None)

    def _is_over_now(self) -> None:
        """Detaches it from everything that could wake or cancel it, and breaks reference cycles."""
        self._is_over = True
        self._call.slot.on_cancel = None
        if self._poll is not None:
            self._poll.end()
            self._poll = None

    def _answer(self, found: list[FetchedPart]) -> Pieces | None:
        call, fetch, quotas = self._call, self._fetch, self._call.broker.quotas
        if call.version < FIRST_VERSION:
            response = fetch.response(found)
            if quotas.is_any:
                return self._dispatch.within_quotas(call, response, self._held_ns)
            return self._dispatch.packed(call, response)
        name = (call.version, call.slot.header.correlation_id, fetch.session_id)
        news = fetch.news(found)
        pieces = fetch_answer(*name, news)
        if quotas.is_any and (pause_ms := self._dispatch.charge(call, pieces, self._held_ns)):
            return fetch_answer(*name, news, pause_ms)
        return pieces
