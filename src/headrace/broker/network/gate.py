"""From accept to login: who is not let in yet, how many of them there are, and for how long.

A client that only connects costs the broker a socket; one that begins TLS costs it a millisecond of its event loop. So
both are bounded before anything else is looked at: in number, in all and per address, and in time; TLS handshakes also
by their rate, counted when the first byte of one has arrived. When all places are taken, whoever has stood there
longest without getting in makes room: a thousand connections that say nothing keep nobody out.

Sockets are accepted by hand here. asyncio would do TLS before anybody is told of a connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import OrderedDict
from typing import TYPE_CHECKING

from headrace.broker.network.newcomer import Newcomer

if TYPE_CHECKING:
    from headrace.broker.network.entrance import Entrance
    from headrace.broker.network.server import Server

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_PATIENCE_S = 1.0
"""Whoever is here for longer makes room for others."""
_NO_FILES_PAUSE_S = 0.1
_BURST = 50
"""Handshakes that may come at once."""


class Gate:
    """Everybody who is on the way in, on all listeners of a node."""

    def __init__(self, server: Server) -> None:
        options = server.logins.options
        self._loop = server.loop
        self._most = options.unauthenticated_max
        self._most_per_address = options.unauthenticated_per_address_max
        self._step_s = 1 / options.tls_handshakes_per_second
        self._next_s = 0.0
        self._here: OrderedDict[Newcomer, None] = OrderedDict()
        """In the order in which they came."""
        self._by_host: dict[str, OrderedDict[Newcomer, None]] = {}
        self._listening: dict[socket.socket, Entrance] = {}
        self._paused: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._here)

    # -- accepting ----------------------------------------------------------------------------------------------

    def open(self, listener: socket.socket, entrance: Entrance) -> None:
        listener.setblocking(False)
        self._listening[listener] = entrance
        self._loop.add_reader(listener, self._accept, listener, entrance)

    def close(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
        for listener in self._listening:
            self._loop.remove_reader(listener)
            listener.close()
        self._listening.clear()
        for newcomer in list(self._here):
            newcomer.turn_away()

    def _accept(self, listener: socket.socket, entrance: Entrance) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if len(self._here) >= self._most and not self._make_room(self._here):
                self._pause(_PATIENCE_S / 10)
                return
            try:
                line, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.warning("connections cannot be accepted", extra={"why": error.strerror})
                    self._pause(_NO_FILES_PAUSE_S)
                return
            line.setblocking(False)
            entrance.came(line, address)

    def _pause(self, pause_s: float) -> None:
        """Lets further clients wait in the system's queue."""
        if self._paused is not None:
            return
        for listener in self._listening:
            self._loop.remove_reader(listener)
        self._paused = self._loop.call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        self._paused = None
        for listener, entrance in self._listening.items():
            self._loop.add_reader(listener, self._accept, listener, entrance)

    # -- places -------------------------------------------------------------------------------------------------

    def take_place(self, newcomer: Newcomer) -> bool:
        """Counts somebody who came, by address; whether there is a place."""
        neighbours = self._by_host.setdefault(newcomer.host, OrderedDict())
        if len(neighbours) >= self._most_per_address and not self._make_room(neighbours):
            return False
        neighbours = self._by_host.setdefault(newcomer.host, neighbours)  # it went with the last one who left
        neighbours[newcomer] = None
        self._here[newcomer] = None
        return True

    def leave(self, newcomer: Newcomer) -> None:
        """Somebody got in, or went."""
        self._here.pop(newcomer, None)
        neighbours = self._by_host.get(newcomer.host)
        if neighbours is not None:
            neighbours.pop(newcomer, None)
            if not neighbours:
                del self._by_host[newcomer.host]

    def _make_room(self, crowd: OrderedDict[Newcomer, None]) -> bool:
        """Sends the one away that was there for longest, if it had its time."""
        oldest = next(iter(crowd))
        if self._loop.time() - oldest.since_s < _PATIENCE_S:
            return False
        oldest.turn_away()
        return True

    # -- the rate of handshakes ---------------------------------------------------------------------------------

    async def handshake_turn(self) -> None:
        """Returns when another TLS handshake may begin."""
        now_s = self._loop.time()
        self._next_s = max(self._next_s, now_s - _BURST * self._step_s) + self._step_s
        if self._next_s > now_s:
            await asyncio.sleep(self._next_s - now_s)
