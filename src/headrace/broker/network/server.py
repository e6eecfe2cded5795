"""The TCP server: start, serve, stop.

Stopping is part of the contract: no new connections, requests in flight are finished, idle connections are closed, and
what does not finish in time is cut off. A node that hands over to others first holds new requests, so that no client is
sent to a leader that does not know it yet.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.access import Access
from headrace.broker.dispatch import Dispatch
from headrace.broker.logins.logins import Logins
from headrace.broker.logins.options import LoginOptions
from headrace.broker.metrics.requests import RequestMetrics
from headrace.broker.network.connection import Connection
from headrace.broker.network.entrance import Entrance
from headrace.broker.network.flow import AnswerRoom, ByteBudget
from headrace.broker.network.frame_buffers import FrameBuffers
from headrace.broker.network.gate import Gate
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.caller import ANONYMOUS, Caller
from headrace.store.cluster.nodes.endpoints import DEFAULT_LISTENER
from headrace.ticks import tick
from headrace.wire.apis import FETCH, PRODUCE

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.network.tls import Certificates
    from headrace.broker.options import BrokerOptions
    from headrace.security.listeners import Listener

log = logging.getLogger(__name__)

_RECEIVE_BUFFER_BYTES = 256 << 10
_IDLE_CHECK_S = 1.0
_PACE_CHECK_S = 2.0
_SLOWEST_BYTES_PER_S = 64 << 10
_BACKLOG = 1024


class Server:
    """Listens, and owns the connections."""

    def __init__(self, broker: Broker, logins: LoginOptions | None = None) -> None:
        self.broker = broker
        self.logins = Logins(broker, logins or LoginOptions())
        self.loop = asyncio.get_running_loop()
        self.budget = ByteBudget(self.options.request_budget_bytes)
        self.answer_room = AnswerRoom(self.options.request_budget_bytes)
        self.anonymous = Access(broker, Caller(ANONYMOUS, DEFAULT_ORGANISATION, DEFAULT_LISTENER))
        """What a client reaches that did not say who it is."""
        self.requests = RequestMetrics()
        broker.store.cold_reads.pace.others = self._hot_requests
        self.dispatch = Dispatch(broker, self.requests)
        self.watchdog = broker.watchdog
        self.end_of_turn = broker.store.end_of_turn
        """The store's: one wake-up for answers and appends."""
        self.frame_buffers = FrameBuffers()
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BUFFER_BYTES))
        self.is_stopping = False
        self.held: asyncio.Event | None = None
        """Requests that come now wait for it; None: they are answered."""
        self.failures = 0
        self.accepted = self.refused = 0
        self.connections: set[Connection] = set()
        self.certificates: Certificates | None = None
        self._gate = Gate(self)
        self._open: list[asyncio.Server] = []
        self._is_listening = False
        self._checks: list[asyncio.Task[None]] = []
        self._all_gone = asyncio.Event()

    @property
    def options(self) -> BrokerOptions:
        """As they are now: some change while the broker runs."""
        return self.broker.options

    @property
    def is_listening(self) -> bool:
        """Whether new connections are served."""
        return self._is_listening and not self.is_stopping

    async def start(self, *sockets: socket.socket, listeners: Sequence[Listener] = ()) -> None:
        """Serves on sockets that are bound already; without listeners, as plain ones."""
        if any(listener.is_sasl for listener in listeners):
            await self.broker.store.load_login_secret()
        await self.logins.start()
        if self.certificates is not None:
            self.certificates.watch()
        for index, bound in enumerate(sockets):
            listener = listeners[index] if listeners else None
            if listener is None or (listener.protocol == "PLAINTEXT" and not listener.proxy_from):
                await self._open_plainly(bound, listener)
            else:
                certificates = self.certificates if listener.is_tls else None
                self._gate.open(bound, Entrance(self, self._gate, listener, certificates))
        self._is_listening = True
        self._checks = [self.loop.create_task(self._close_idle()), self.loop.create_task(self._close_slow())]

    async def _open_plainly(self, bound: socket.socket, listener: Listener | None) -> None:
        """Serves a client that needs no TLS, PROXY header or login."""
        if listener is not None:
            caller = self.anonymous.caller._replace(listener=listener.name)
            access = Access(self.broker, caller)
        else:
            access = self.anonymous
        self._open.append(await self.loop.create_server(lambda: Connection(self, access), sock=bound, backlog=_BACKLOG))

    def _hot_requests(self) -> int:
        """Produce requests, and Fetches of records that are in Redis."""
        return self.requests.number(PRODUCE) + self.requests.number(FETCH) - self.broker.store.cold_reads.fetches

    def hold(self) -> None:
        """Starts no request, until `go_on`."""
        self.held = self.held or asyncio.Event()

    def go_on(self) -> None:
        if self.held is not None:
            self.held.set()
            self.held = None

    def stop_accepting(self) -> None:
        """Takes no new connections: clients try another node."""
        self._is_listening = False
        for one in self._open:
            one.close()
        self._open.clear()
        self._gate.close()

    async def stop(self) -> None:
        """Stops accepting, finishes requests in flight, closes."""
        self.is_stopping = True
        self.stop_accepting()
        self.go_on()
        self.logins.close()
        if self.certificates is not None:
            self.certificates.close()
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
            log.warning("requests in flight were cut off", extra={"connections": len(self.connections)})
        for connection in list(self.connections):
            connection.abort()

    def admit(self, connection: Connection) -> bool:
        """Counts a new connection; whether there is room for it."""
        most = connection.access.limits.connections
        is_full = len(self.connections) >= self.options.connections_max or (
            most is not None and most <= self._connections_of(connection.access.caller.organisation)
        )
        if self.is_stopping or is_full:
            self.refused += 1
            return False
        self.accepted += 1
        self.connections.add(connection)
        return True

    def _connections_of(self, organisation: str) -> int:
        return sum(one.access.caller.organisation == organisation for one in self.connections)

    def hold_back(self, connection: Connection) -> None:
        """A client that connects too often is not served, and finds out after the time that its quota asks for."""
        quotas = self.broker.quotas
        if quotas.is_any and (pause_ms := quotas.connection_pause_ms(connection.peer_host)):
            connection.pause("quota")
            self.loop.call_later(pause_ms / 1000, connection.close, "it exceeded its connection quota")

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
            await tick(min(_IDLE_CHECK_S, limit_s))
            horizon = self.loop.time() - limit_s
            for connection in list(self.connections):
                if connection.is_waited_for and connection.last_active < horizon:
                    connection.close_idle()

    async def _close_slow(self) -> None:
        """While others wait for the budget, a frame that holds part of it has to keep arriving."""
        while True:
            was_wanted = bool(self.budget.waiters)
            await tick(_PACE_CHECK_S)
            for connection in list(self.connections):
                is_slow = connection.is_slow(int(_PACE_CHECK_S * _SLOWEST_BYTES_PER_S))
                if is_slow and was_wanted and self.budget.waiters:
                    connection.close("its request arrived too slowly while others waited for memory")
