"""A proxy between the store and its servers that can lose what a real network loses, at a chosen command.

It knows nothing of Redis: a trap names the command by its bytes and says what becomes of it. Commands here are small
and arrive whole, so a chunk that matches holds the command.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import msgspec

from headrace.store.embedded.ports import HOST
from headrace.store.redis.address import Address, HostPort, parse_address

Fate = Literal["swallow", "lose reply", "hold"]
"""The command never arrives; it is done and its reply is lost; it arrives when `release` says so."""

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
_CHUNK_BYTES = 1 << 22


class Trap:
    """What shall happen to the next command that matches."""

    def __init__(self, matches: Callable[[bytes], bool], fate: Fate, sent_bytes: int | None) -> None:
        self.matches = matches
        self.fate = fate
        self.sent_bytes = sent_bytes
        self.sprung = asyncio.Event()
        self.release = asyncio.Event()
        self.arrived = asyncio.Event()


class ProxiedAddress(Address, frozen=True):
    """An address whose servers are reached at other ports than those they name themselves."""

    ways: tuple[tuple[int, int], ...] = ()

    def at(self, place: HostPort) -> Address:
        return super().at(HostPort(place.host, dict(self.ways).get(place.port, place.port)))


class Proxy:
    """Stands before a single server at a socket of its own, before the servers of a cluster or Sentinel at ports."""

    def __init__(self) -> None:
        self.is_open = True
        self.address = Address()
        """The way to the servers that leads through here."""
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._trap: Trap | None = None

    async def start_before_socket(self, path: str, target: str) -> Proxy:
        connected = partial(self._connected, partial(asyncio.open_unix_connection, target))
        self._servers.append(await asyncio.start_unix_server(connected, path))
        self.address = parse_address(f"unix://{path}")
        return self

    async def start_before_ports(self, url: str, ports: list[int]) -> Proxy:
        ways = []
        for port in ports:
            connected = partial(self._connected, partial(asyncio.open_connection, HOST, port))
            server = await asyncio.start_server(connected, HOST, 0)
            self._servers.append(server)
            ways.append((port, server.sockets[0].getsockname()[1]))
        self.address = ProxiedAddress(**msgspec.structs.asdict(parse_address(url)), ways=tuple(ways))
        return self

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Breaks all connections, at both ends."""
        for writer in list(self._writers):
            writer.transport.abort()

    def trap(self, fate: Fate, matches: Callable[[bytes], bool] | None = None, sent_bytes: int | None = None) -> Trap:
        """Sets a trap for the next append (or what else matches); `sent_bytes` lets so much of it arrive."""
        self._trap = Trap(matches or is_append, fate, sent_bytes)
        return self._trap

    async def _connected(self, dial: Dial, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not self.is_open:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await dial()
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        replies = asyncio.create_task(self._forward(up_reader, writer))
        try:
            with contextlib.suppress(ConnectionError):
                await self._requests(reader, writer, up_reader, up_writer, replies)
        finally:
            replies.cancel()
            self._writers -= {writer, up_writer}
            writer.transport.abort()
            up_writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                writer.write(data)
        writer.transport.abort()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
        replies: asyncio.Task[None],
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            trap = self._trap
            if trap is None or not trap.matches(data):
                up_writer.write(data)
                continue
            self._trap = None
            replies.cancel()
            await asyncio.gather(replies, return_exceptions=True)
            if trap.fate == "lose reply":
                up_writer.write(data)
                await up_reader.read(_CHUNK_BYTES)
            elif trap.sent_bytes:
                up_writer.write(data[: trap.sent_bytes])
                await up_writer.drain()
            writer.transport.abort()
            trap.sprung.set()
            if trap.fate == "hold":
                self._writers.discard(up_writer)
                await trap.release.wait()
                up_writer.write(data)
                await up_reader.read(_CHUNK_BYTES)
                trap.arrived.set()
            return


def is_append(data: bytes) -> bool:
    """Whether a chunk holds an append to a log, in either format."""
    is_script = b"\r\nEVALSHA\r\n" in data and b":stream\r\n" in data and b"\r\nw:" in data
    return is_script or (b"\r\nXADD\r\n" in data and b":log\r\n" in data)
