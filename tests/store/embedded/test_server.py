"""The embedded server: never two on one data directory, nothing lost with the broker, back when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.store.embedded import server as module
from headrace.store.embedded.control import ControlLine
from headrace.store.embedded.data_directory import MARKER
from headrace.store.embedded.server import CannotStart, Durability, EmbeddedValkey
from headrace.store.embedded.socket import is_private, is_server

# A broker in a process of its own: it says where its server is and then waits to be killed.
BROKER = """
import asyncio, sys
from pathlib import Path
from headrace.store.embedded.server import EmbeddedValkey

async def main():
    server = EmbeddedValkey(Path(sys.argv[1]), durability=sys.argv[2], maxmemory_bytes=64 << 20)
    await server.start()
    print(server.pid, server.socket_path, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

Make = Callable[..., EmbeddedValkey]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Embedded servers of one data directory, all ended afterwards."""
    made: list[EmbeddedValkey] = []

    def make_one(durability: Durability = "everysec", path: Path = tmp_path / "data") -> EmbeddedValkey:
        made.append(EmbeddedValkey(path, durability=durability, maxmemory_bytes=64 << 20))
        return made[-1]

    yield make_one
    for server in made:
        await server.stop()


async def ask(server: EmbeddedValkey, *words: str) -> Any:
    line = await ControlLine.open(server.socket_path)
    try:
        return await line.call(*words)
    finally:
        line.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OSError):
                if await holds():
                    return
            await asyncio.sleep(0.005)


def broker_process(data: Path, durability: str = "everysec") -> tuple[subprocess.Popen[str], int, str]:
    process = subprocess.Popen([sys.executable, "-c", BROKER, str(data), durability], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, path = process.stdout.readline().split()
    return process, int(pid), path


def killed_broker(data: Path, durability: str = "everysec") -> tuple[int, str]:
    """The pid and socket of the server that a broker left which was killed."""
    process, pid, path = broker_process(data, durability)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    return pid, path


def runs(pid: int) -> bool:
    return is_server(pid, "valkey.sock")


# Start and stop.


async def test_what_was_written_is_there_after_stop_and_start(make: Make) -> None:
    server = make()
    await server.start()
    await ask(server, "XADD", "k", "1-1", "b", "batch")
    pid, path = server.pid, server.socket_path
    await server.stop()
    assert not runs(pid)
    assert not Path(path).parent.exists()
    again = make()
    await again.start()
    assert await ask(again, "XLEN", "k") == 1
    assert not again.adopted


async def test_the_socket_is_short_and_private_however_long_the_data_directory_is(make: Make, tmp_path: Path) -> None:
    data = tmp_path / ('it\'s "a" très long name ' * 4) / "data"
    server = make(path=data)
    await server.start()
    assert len(os.fsencode(server.socket_path)) <= 100
    directory = Path(server.socket_path).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert os.fsdecode((await ask(server, "CONFIG", "GET", "dir"))[1]) == str(data.resolve() / "valkey")


@pytest.mark.parametrize("durability", ["always", "everysec"])
async def test_the_log_on_disk_is_synced_as_the_durability_says(make: Make, durability: Durability) -> None:
    server = make(durability)
    await server.start()
    assert await ask(server, "CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
    assert await ask(server, "CONFIG", "GET", "appendfsync") == [b"appendfsync", durability.encode()]
    assert await ask(server, "CONFIG", "GET", "maxmemory-policy") == [b"maxmemory-policy", b"noeviction"]
    assert await ask(server, "CONFIG", "GET", "maxmemory") == [b"maxmemory", str(64 << 20).encode()]


async def test_memory_writes_nothing_to_disk(make: Make, tmp_path: Path) -> None:
    server = make("memory")
    await server.start()
    await ask(server, "SET", "k", "v")
    await server.stop()
    assert list((tmp_path / "data" / "valkey").iterdir()) == []


async def test_memory_keeps_what_was_durable_before(make: Make) -> None:
    for durability, key in (("everysec", "durable"), ("memory", "volatile")):
        server = make(durability)
        await server.start()
        await ask(server, "SET", key, "v")
        assert await ask(server, "EXISTS", "durable") == 1
        await server.stop()
    again = make("everysec")
    await again.start()
    assert await ask(again, "EXISTS", "durable", "volatile") == 1


async def test_stopping_twice_or_before_the_start_is_fine(make: Make) -> None:
    server = make()
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()


def test_it_runs_on_uvloop_as_well(tmp_path: Path) -> None:
    async def life() -> None:
        server = EmbeddedValkey(tmp_path / "data", maxmemory_bytes=64 << 20)
        await server.start()
        try:
            os.kill(server.pid, signal.SIGKILL)
            await until(lambda: answers(server))
            assert server.restarts == 1
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(life())


async def answers(server: EmbeddedValkey) -> bool:
    return server.restarts > 0 and bool(await ask(server, "PING") == b"PONG")


# One broker, one server.


async def test_a_second_broker_is_told_who_uses_the_data_directory(make: Make, tmp_path: Path) -> None:
    process, _, path = broker_process(tmp_path / "data")
    try:
        with pytest.raises(CannotStart, match=rf"in use by another broker \(pid {process.pid}\)"):
            await make().start()
        assert is_private(Path(path).parent)
    finally:
        process.kill()
        process.communicate()
    adopter = make()
    await adopter.start()
    assert adopter.adopted


async def test_a_killed_brokers_server_is_adopted_with_all_that_it_holds(make: Make, tmp_path: Path) -> None:
    process, pid, path = broker_process(tmp_path / "data", "memory")
    line = await ControlLine.open(path)
    await line.call("SET", "last", "moment")
    line.close()
    process.kill()
    process.communicate()
    server = make("memory")
    await server.start()
    assert (server.adopted, server.pid, server.socket_path) == (True, pid, path)
    assert await ask(server, "GET", "last") == b"moment"
    await server.stop()
    assert not runs(pid)


async def test_an_adopted_server_gets_the_durability_of_its_new_broker(make: Make, tmp_path: Path) -> None:
    killed_broker(tmp_path / "data", "everysec")
    server = make("always")
    await server.start()
    assert server.adopted
    assert await ask(server, "CONFIG", "GET", "appendfsync") == [b"appendfsync", b"always"]


async def test_from_memory_to_always_everything_is_on_disk_once_it_started(make: Make, tmp_path: Path) -> None:
    process, pid, path = broker_process(tmp_path / "data", "memory")
    line = await ControlLine.open(path)
    await line.call("SET", "k", "v")
    line.close()
    process.kill()
    process.communicate()
    server = make("always")
    await server.start()
    assert server.pid == pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: answers(server))
    assert await ask(server, "GET", "k") == b"v"


async def test_an_adopted_server_that_dies_is_started_again(make: Make, tmp_path: Path) -> None:
    pid, path = killed_broker(tmp_path / "data")
    server = make()
    await server.start()
    os.kill(pid, signal.SIGKILL)
    await until(lambda: answers(server))
    assert server.pid != pid
    assert server.socket_path == path


async def test_a_left_over_that_does_not_answer_is_ended_first(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_PATIENCE_S", 0.2)
    monkeypatch.setattr(module, "_EXIT_PATIENCE_S", 0.5)
    pid, _ = killed_broker(tmp_path / "data")
    os.kill(pid, signal.SIGSTOP)
    server = make()
    await server.start()
    assert not server.adopted
    assert not runs(pid)


async def test_a_left_over_is_found_although_its_pid_was_never_written(make: Make, tmp_path: Path) -> None:
    pid, path = killed_broker(tmp_path / "data")
    record = tmp_path / "data" / "valkey.json"
    record.write_text(f'{{"socket": "{path}", "pid": 0}}')
    server = make()
    await server.start()
    assert (server.adopted, server.pid) == (True, pid)


async def test_without_its_record_a_living_server_still_prevents_a_second_one(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EXIT_PATIENCE_S", 0.1)
    pid, path = killed_broker(tmp_path / "data")
    (tmp_path / "data" / "valkey.json").unlink()
    with pytest.raises(CannotStart, match="lsof"):
        await make().start()
    assert runs(pid)
    os.kill(pid, signal.SIGKILL)
    server = make()
    await until(lambda: started(server))
    shutil.rmtree(Path(path).parent)


async def started(server: EmbeddedValkey) -> bool:
    with contextlib.suppress(CannotStart):
        await server.start()
        return True
    return False


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


async def test_a_reused_pid_is_never_signalled(
    make: Make, tmp_path: Path, bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_PATIENCE_S", 0.1)
    monkeypatch.setattr(module, "_EXIT_PATIENCE_S", 0.1)
    pid, path = killed_broker(tmp_path / "data")
    os.kill(pid, signal.SIGSTOP)
    (tmp_path / "data" / "valkey.json").write_text(f'{{"socket": "{path}", "pid": {bystander.pid}}}')
    with pytest.raises(CannotStart, match="lsof"):
        await make().start()
    os.kill(pid, signal.SIGKILL)
    server = make()
    await until(lambda: started(server))
    assert bystander.poll() is None
    assert not Path(path).parent.exists(), "the dead server's socket directory is cleared away"


async def test_a_copied_data_directory_gets_a_server_of_its_own(make: Make, tmp_path: Path) -> None:
    first = make()
    await first.start()
    await ask(first, "SET", "k", "first")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    second = make(path=tmp_path / "copy")
    await second.start()
    assert second.pid != first.pid
    assert second.socket_path != first.socket_path
    assert await ask(first, "GET", "k") == b"first"


# When it dies.


async def test_a_server_that_dies_is_started_again_on_the_same_socket(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = make("always")
    await server.start()
    await ask(server, "SET", "k", "v")
    pid, path = server.pid, server.socket_path
    os.kill(pid, signal.SIGKILL)
    await until(lambda: answers(server))
    assert server.pid != pid
    assert server.socket_path == path
    assert await ask(server, "GET", "k") == b"v"
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "the embedded server ended (signal 9); restarting it"
    ]


async def test_a_server_that_is_killed_again_and_again_is_never_away_for_long(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's lease must outlive it: no pause comes near its ten seconds, and the first few kills cost none."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        pauses.append(delay)
        await sleep(delay)

    server = make("always")
    await server.start()
    monkeypatch.setattr(asyncio, "sleep", noted)
    for kills in range(1, 12):
        pid = server.pid
        os.kill(pid, signal.SIGKILL)

        async def is_back(pid: int = pid) -> bool:
            return server.pid != pid and await answers(server)

        await until(is_back)
        assert max(pauses) <= (0.05 if kills <= 5 else 1.0)


async def test_a_closed_line_alone_is_no_reason_to_restart(make: Make) -> None:
    server = make()
    await server.start()
    pid = server.pid
    await ask(server, "CLIENT", "KILL", "SKIPME", "yes")

    async def watched_again() -> bool:
        clients = await ask(server, "CLIENT", "LIST")
        return len(clients.splitlines()) == 2

    await until(watched_again)
    assert (server.pid, server.restarts) == (pid, 0)


async def test_a_crash_loop_is_reported_once_with_the_end_of_the_servers_log(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BACK_OFF_S", 0.001)
    server = make("always")  # with everysec, a write may reach the file later than its answer
    await server.start()
    await ask(server, "SET", "k", "v")
    appended = next((tmp_path / "data" / "valkey" / "appendonlydir").glob("*.incr.aof"))
    whole = appended.read_bytes()
    appended.write_bytes(b"this is no append-only file\r\n" * 10)
    os.kill(server.pid, signal.SIGKILL)

    async def looping() -> bool:
        return server.restarts >= 6

    await until(looping)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "Bad file format" in errors[0]
    mended = appended.with_suffix(".mended")
    mended.write_bytes(whole)
    mended.replace(appended)  # at once: a server that finds an empty file starts without the key
    await until(lambda: answers(server))
    assert await ask(server, "GET", "k") == b"v"


async def test_it_is_ended_even_if_its_data_directory_was_removed(make: Make, tmp_path: Path) -> None:
    server = make()
    await server.start()
    pid = server.pid
    shutil.rmtree(tmp_path / "data")
    await server.stop()
    assert not runs(pid)


async def test_a_start_that_fails_leaves_nothing_behind(make: Make, tmp_path: Path) -> None:
    server = make()
    await server.start()
    await ask(server, "SET", "k", "v")
    await server.stop()
    appended = next((tmp_path / "data" / "valkey" / "appendonlydir").glob("*.incr.aof"))
    appended.write_bytes(b"this is no append-only file\r\n" * 10)
    with pytest.raises(CannotStart, match="Bad file format"):
        await make().start()
    assert {p.name for p in (tmp_path / "data").iterdir()} == {MARKER, "valkey", "valkey.log"}
