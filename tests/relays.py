"""A network that fails: TCP relays between processes, each of which can go silent, refuse, or break what is open.

Silence is the worst of it: connections stay, new ones are made, and nothing arrives at the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvloop

Address = tuple[str, int]
_CHUNK_BYTES = 1 << 18


class Relay:
    """Listens at one address and forwards to another."""

    def __init__(self, network: Network, at: Address, target: Address) -> None:
        self.at, self.target = at, target
        self._network = network
        self._server: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._is_silent = False

    def go_silent(self) -> None:
        """Nothing arrives any more, over any connection, old or new."""

        def silence() -> None:
            self._is_silent = True
            self._silence_lines()

        self._network.call(silence)

    def lose_track(self) -> None:
        """What a firewall does that restarts: connections that are open go silent, new ones work."""
        self._network.call(self._silence_lines)

    def refuse(self) -> None:
        """Breaks what is open and refuses what is new."""
        assert self._server is not None
        self._network.call(self._server.close)
        self._network.call(self._cut)

    def heal(self) -> None:
        """Works again. Whatever was swallowed is lost, so connections that went silent break now."""
        self._is_silent = False
        self._network.call(self._cut_silent)
        if self._server is None or not self._server.is_serving():
            self.listen()

    def listen(self) -> None:
        self._server = self._network.run(asyncio.start_server(self._connected, *self.at))

    def close(self) -> None:
        self.refuse()

    def _silence_lines(self) -> None:
        for line in self._lines:
            line.is_silent = True

    def _cut_silent(self) -> None:
        for line in list(self._lines):
            if line.is_silent:
                line.abort()

    def _cut(self) -> None:
        for line in list(self._lines):
            line.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(writer)
        line.is_silent = self._is_silent
        self._lines.add(line)
        try:
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(*self.target)
                line.ends.append(far_writer)
                await asyncio.gather(line.forward(reader, far_writer), line.forward(far_reader, writer))
        finally:
            line.abort()
            self._lines.discard(line)


class _Line:
    """A connection through a relay."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.ends = [near]
        self.is_silent = False

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if not self.is_silent:
                    writer.write(data)
                    await writer.drain()
        if not self.is_silent:  # nor does the end of a connection come through
            self.abort()

    def abort(self) -> None:
        for end in self.ends:
            end.transport.abort()


class Network:
    """The relays of a test, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._thread.start()
        self._relays: list[Relay] = []

    def relay(self, at: Address, target: Address) -> Relay:
        made = Relay(self, at, target)
        made.listen()
        self._relays.append(made)
        return made

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, what: Callable[[], object]) -> None:
        async def called() -> None:
            what()

        self.run(called())

    def close(self) -> None:
        for relay in self._relays:
            relay.close()
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.contextmanager
def network() -> Iterator[Network]:
    made = Network()
    try:
        yield made
    finally:
        made.close()
