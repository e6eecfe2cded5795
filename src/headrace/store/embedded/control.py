"""A connection that controls the embedded server: ping, identify, configure, shut down.

Separate from the store's own client: the server must be started, adopted and stopped before that client exists and
after it is gone. One call at a time; no reconnects.
"""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis

_pack: Any = hiredis.pack_command  # its stub knows tuples of one word only


class ControlLine:
    """One connection to the server's unix socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader()

    @classmethod
    async def open(cls, socket: str) -> ControlLine:
        return cls(*await asyncio.open_unix_connection(socket))

    async def call(self, *words: str) -> Any:
        """One command's reply; an error reply comes back as hiredis.ReplyError, it is not raised."""
        self._writer.write(_pack(words))
        while (reply := self._parser.gets()) is False:
            if not (received := await self._reader.read(65536)):
                raise ConnectionResetError("the embedded server closed the connection")
            self._parser.feed(received)
        return reply

    async def info(self, section: str) -> dict[str, str]:
        reply = await self.call("INFO", section)
        if isinstance(reply, hiredis.ReplyError):
            return {}
        lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
        return {name: value for name, colon, value in lines if colon}

    async def config(self, name: str) -> bytes:
        reply = await self.call("CONFIG", "GET", name)
        return reply[1] if isinstance(reply, list) and len(reply) == 2 else b""

    async def configure(self, options: dict[str, str]) -> None:
        words = [word for option in options.items() for word in option]
        reply = await self.call("CONFIG", "SET", *words)
        if isinstance(reply, hiredis.ReplyError):
            raise reply

    async def closed(self) -> None:
        """Wait until the server ends or drops this connection."""
        try:
            while await self._reader.read(65536):
                pass
        except ConnectionError:
            pass

    def close(self) -> None:
        self._writer.close()


async def knock(socket: str) -> ControlLine | str:
    """A line to a server that is ready, or how many percent of its log it has loaded."""
    line = await ControlLine.open(socket)
    try:
        reply = await line.call("PING")
        if not (isinstance(reply, hiredis.ReplyError) and str(reply).startswith("LOADING")):
            return line
        percent = (await line.info("persistence")).get("loading_loaded_perc", "?")
    except BaseException:
        line.close()
        raise
    line.close()
    return percent
