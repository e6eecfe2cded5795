"""How quotas affect a request: its response says how long to pause, and its connection is muted for that time.

A Produce is charged its bytes, a Fetch those of its response, and every request its time on the event loop. Clients
over their quota get their response at once, except that a Fetch returns no records.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.security.quotas import CONSUMER, PRODUCER, REQUESTS
from headrace.wire.apis import FETCH, PRODUCE
from headrace.wire.codec import Pieces

if TYPE_CHECKING:
    from headrace.broker.call import Call

T = TypeVar("T")

STRICT_SINCE = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics, CreatePartitions: the versions from which a client understands error 89 (KIP-599)."""
_NS_PER_PERCENT = 10_000_000
"""One percent of a second."""


class Timed(Awaitable[T]):
    """A coroutine, and the time that it held the event loop."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self.held_ns = 0

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        sent: Any = None
        thrown: BaseException | None = None
        while True:
            began = time.perf_counter_ns()
            try:
                waits_for = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.held_ns += time.perf_counter_ns() - began
            sent = thrown = None
            try:
                sent = yield waits_for
            except BaseException as error:
                thrown = error


def settle(call: Call, key: int, request_bytes: int, pieces: Pieces, held_ns: int) -> int:
    """Charges a request that is answered; how long its client has to pause."""
    quotas, caller, client_id = call.broker.quotas, call.caller, call.client_id
    pause_ms = call.pause_ms
    if key == PRODUCE:
        pause_ms = max(pause_ms, quotas.charge(PRODUCER, caller, client_id, request_bytes))
    elif key == FETCH and not pause_ms:
        quotas.charge(CONSUMER, caller, client_id, sum(map(len, pieces)))  # the next one pays
    if held_ns:
        pause_ms = max(pause_ms, quotas.charge(REQUESTS, caller, client_id, held_ns / _NS_PER_PERCENT))
    return pause_ms


def is_timed(call: Call) -> bool:
    """Whether the time of a request counts."""
    return call.broker.quotas.is_limited(REQUESTS, call.caller, call.client_id)
