"""Turns for TLS handshakes: so many a second, and one address after the other.

A queue of one address does not make others wait, and who has gone in the meantime costs no turn: else a crowd that
comes faster than turns do would make everybody wait for ever.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

_BURST = 2
"""Handshakes that may come at once: each is about a millisecond in which nobody else is served."""


class HandshakeTurns:
    """One node's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_second: int) -> None:
        self._loop = loop
        self._step_s = 1 / per_second
        self._next_s = 0.0
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By address, in the order in which they have their turn."""
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, host: str) -> None:
        """Returns when it is this address's turn."""
        if not self._queues and self._take():
            return
        turn = self._loop.create_future()
        self._queues.setdefault(host, deque()).append(turn)
        self._call_later()
        await turn

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _take(self) -> bool:
        now_s = self._loop.time()
        if self._next_s > now_s:
            return False
        self._next_s = max(self._next_s, now_s - _BURST * self._step_s) + self._step_s
        return True

    def _call_later(self) -> None:
        if self._timer is None and self._queues:
            self._timer = self._loop.call_at(max(self._next_s, self._loop.time()), self._hand_out)

    def _hand_out(self) -> None:
        self._timer = None
        while (turn := self._first()) is not None and self._take():
            host, queue = self._queues.popitem(last=False)
            queue.popleft()
            if queue:
                self._queues[host] = queue
            turn.set_result(None)
        self._call_later()

    def _first(self) -> asyncio.Future[None] | None:
        """The next one still connected."""
        while self._queues:
            host, queue = next(iter(self._queues.items()))
            while queue:
                if not queue[0].done():
                    return queue[0]
                queue.popleft()
            del self._queues[host]
        return None
