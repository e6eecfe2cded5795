"""The TCP server: start, serve, stop.

Stopping is part of the contract: no new connections, what is under way is finished, idle connections are closed, and
what does not finish in time is cut.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from headrace.broker.connection import Connection
from headrace.broker.dispatch import Dispatch
from headrace.broker.flow import AnswerRoom, ByteBudget
from headrace.broker.frame_buffers import FrameBuffers

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

_RECEIVE_BUFFER_BYTES = 256 << 10
_IDLE_CHECK_S = 1.0
_PACE_CHECK_S = 2.0
_SLOWEST_BYTES_PER_S = 64 << 10
_BACKLOG = 1024


class Server:
    """Listens, and owns the connections."""

    def __init__(self, broker: Broker) -> None:
        self.options = broker.options
        self.loop = asyncio.get_running_loop()
        self.budget = ByteBudget(self.options.request_budget_bytes)
        self.answer_room = AnswerRoom(self.options.request_budget_bytes)
        self.dispatch = Dispatch(broker)
        self.frame_buffers = FrameBuffers()
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BUFFER_BYTES))
        self.is_stopping = False
        self.failures = 0
        self.connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._checks: list[asyncio.Task[None]] = []
        self._all_gone = asyncio.Event()

    async def start(self, listener: socket.socket) -> None:
        """Serves on a socket that is bound already."""
        self._listener = await self.loop.create_server(lambda: Connection(self), sock=listener, backlog=_BACKLOG)
        self._checks = [self.loop.create_task(self._close_idle()), self.loop.create_task(self._close_slow())]

    async def stop(self) -> None:
        """Stops accepting, finishes what is under way, closes."""
        self.is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for check in self._checks:
            check.cancel()
        for connection in list(self.connections):
            connection.finish()
        try:
            async with asyncio.timeout(self.options.shutdown_grace_ms / 1000):
                while self.connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()
        except TimeoutError:
            log.warning("requests under way were cut", extra={"connections": len(self.connections)})
        for connection in list(self.connections):
            connection.abort()

    def admit(self, connection: Connection) -> bool:
        """Counts a new connection; whether there is room for it."""
        if self.is_stopping or len(self.connections) >= self.options.connections_max:
            return False
        self.connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._all_gone.set()

    def count_failure(self) -> None:
        """A request that failed by a fault of ours."""
        self.failures += 1

    async def _close_idle(self) -> None:
        limit_s = self.options.connections_idle_ms / 1000
        while True:
            await asyncio.sleep(min(_IDLE_CHECK_S, limit_s))
            horizon = self.loop.time() - limit_s
            for connection in list(self.connections):
                if connection.is_waited_for and connection.last_active < horizon:
                    connection.close_idle()

    async def _close_slow(self) -> None:
        """While somebody waits for the budget, a frame that holds a part of it has to keep arriving."""
        while True:
            was_wanted = self.budget.is_wanted
            await asyncio.sleep(_PACE_CHECK_S)
            for connection in list(self.connections):
                is_slow = connection.is_slow(int(_PACE_CHECK_S * _SLOWEST_BYTES_PER_S))
                if is_slow and was_wanted and self.budget.is_wanted:
                    connection.close("its request came too slowly while others waited for memory")
