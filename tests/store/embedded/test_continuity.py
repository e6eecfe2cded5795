"""A run of the embedded server continues the one before only if nothing can have been lost in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import hiredis
import pytest

from headrace.store.embedded import server as module
from headrace.store.embedded.control import ControlLine
from headrace.store.embedded.server import Durability, EmbeddedValkey
from headrace.store.keys import EMBEDDED


class Run(NamedTuple):
    """As it is noted in the server."""

    id: bytes
    since: bytes


class Servers:
    """Servers of one data directory, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: EmbeddedValkey | None = None

    async def start(self, durability: Durability = "everysec") -> Run:
        self._running = EmbeddedValkey(self._path, durability=durability, maxmemory_bytes=64 << 20)
        await self._running.start()
        return await self.run()

    async def stop(self) -> None:
        if self._running is not None:
            await self._running.stop()

    async def kill(self) -> Run:
        """SIGKILL; the run that follows."""
        assert self._running is not None
        before = await self.run()
        os.kill(self._running.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError):
                    if (after := await self.run()).id != before.id:
                        return after
                await asyncio.sleep(0.005)

    async def run(self) -> Run:
        assert self._running is not None
        line = await ControlLine.open(self._running.socket_path)
        try:
            reply: Any = await line.call("HMGET", EMBEDDED, "run", "since")
            if isinstance(reply, hiredis.ReplyError):
                raise ConnectionError(str(reply))  # it is loading its log
            return Run(*reply)
        finally:
            line.close()


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    made = Servers(tmp_path / "data")
    yield made
    await made.stop()


@pytest.mark.parametrize("durability", ["everysec", "always"])
async def test_an_orderly_stop_is_followed_by_a_run_that_continues(servers: Servers, durability: Durability) -> None:
    first = await servers.start(durability)
    assert first.since == first.id
    for _ in range(2):
        await servers.stop()
        later = await servers.start(durability)
        assert later.id != first.id
        assert later.since == first.id


async def test_after_a_kill_it_is_a_new_one(servers: Servers) -> None:
    await servers.start()
    await servers.stop()
    continued = await servers.start()
    after = await servers.kill()
    assert after.since == after.id != continued.id


async def test_what_a_run_in_memory_knew_is_lost(servers: Servers) -> None:
    await servers.start()
    await servers.stop()
    await servers.start("memory")
    await servers.stop()
    after = await servers.start()
    assert after.since == after.id


async def test_a_run_of_an_earlier_version_that_was_killed_is_not_passed_over(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await servers.start()
    await servers.stop()

    async def nothing(*_: object, **__: object) -> None:
        return

    with monkeypatch.context() as earlier:
        earlier.setattr(module, "begin_run", nothing)
        assert await servers.start() == first
    after = await servers.kill()
    assert after.since == after.id
