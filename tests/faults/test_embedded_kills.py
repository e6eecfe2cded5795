"""Brokers and servers killed at any moment, over and over: never two servers, and the next start always works."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.store.embedded.server import EmbeddedValkey

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="finds servers by their directory in /proc"),
]

BROKER = """
import asyncio, sys
from pathlib import Path
from headrace.store.embedded.server import EmbeddedValkey

async def main():
    server = EmbeddedValkey(Path(sys.argv[1]), maxmemory_bytes=64 << 20)
    print("starting", flush=True)
    await server.start()
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def servers_of(data: Path) -> list[int]:
    """Pids of the processes that run in the server's directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.path.samefile(process / "cwd", data / "valkey"):
                found.append(int(process.name))
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_kills_at_any_moment_never_leave_two_servers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = tmp_path / "data"
    for _ in range(25):
        one_killed_broker(data, chance)
        assert len(servers_of(data)) <= 1
    server = EmbeddedValkey(data, maxmemory_bytes=64 << 20)
    await server.start()
    assert servers_of(data) == [server.pid]
    await server.stop()
    assert servers_of(data) == []


def one_killed_broker(data: Path, chance: random.Random) -> None:
    command = [sys.executable, "-c", BROKER, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "starting\n"
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.06)  # a moment of the start, not a wait for a state
        else:
            assert broker.stdout.readline() == "started\n"
        if chance.random() < 0.3:
            for pid in servers_of(data):
                os.kill(pid, signal.SIGKILL)
        broker.kill()
