"""An unauthenticated connection: a socket, then a transport, counted at the gate until it is accepted or gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.network.gate import Gate


class Newcomer:
    """One connection before it is let in."""

    __slots__ = ("_gate", "_task", "_timer", "_transport", "host", "port", "since_s")

    def __init__(self, gate: Gate, host: str, port: int, since_s: float) -> None:
        self.host = host
        """As rules about hosts see it: behind a proxy, whoever that speaks for."""
        self.port = port
        self.since_s = since_s
        """From when on it keeps others waiting; infinite while it waits for us."""
        self._gate = gate
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, task: asyncio.Task[None], deadline: asyncio.TimerHandle) -> None:
        """The work of letting it in, and the end of our patience."""
        self._task, self._timer = task, deadline

    def speaks(self, transport: asyncio.Transport) -> None:
        """It has a transport by now."""
        self._transport = transport

    def is_in(self) -> None:
        """It is let in, or gone: its place is free."""
        if self._timer is not None:
            self._timer.cancel()
        self._gate.places.leave(self)

    def turn_away(self) -> None:
        """Closes it: its transport, or else the task that lets it in closes its socket."""
        self.is_in()
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()
