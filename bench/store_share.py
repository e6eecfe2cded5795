"""What the store's part of an append costs: its CPU by entry size, without its append-only file and with it.

The embedded server runs by itself, with the options that a broker gives it, and one client appends entries of one size
to six streams, eight at a time. An allocator that the machine has beside the C library's is preloaded, to see what it
would change.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import cpu_s
from bench.report import Figure, Report
from bench.systems import take_turns, values_of
from headrace.store.embedded.options import ALLOCATOR, Durability, command_line, find_binary, running_options

_MB = 1_000_000
_STREAMS = 6
_AT_ONCE = 8
_MAXMEMORY_BYTES = 4 << 30
_ALLOCATORS = ("tcmalloc_minimal", "mimalloc", "jemalloc")


@dataclass(frozen=True)
class _Server:
    """A way to run the embedded server."""

    name: str
    durability: Durability
    environment: dict[str, str] = field(default_factory=dict)


def run(report: Report, *, quick: bool) -> None:
    servers = [_Server("everysec", "everysec"), _Server("always", "always"), _Server("memory", "memory")]
    preloaded = {name: ctypes.util.find_library(name) for name in _ALLOCATORS}
    servers += [_Server(f"everysec, {name}", "everysec", {"LD_PRELOAD": at}) for name, at in preloaded.items() if at]
    names = [server.name for server in servers]
    for size_bytes, payload_mb in ((1_000, 40), (16_000, 200), (1_000_000, 400)):
        total_mb = payload_mb // 20 if quick else payload_mb
        found = take_turns(servers, 2 if quick else 6, lambda server: _append(server, size_bytes, total_mb))  # noqa: B023
        workload = f"XADD of {size_bytes // 1000} KB, {_AT_ONCE} in flight"
        report.add(Figure("store share", workload, "ms CPU/MB, store process", values_of(found, float, names)))


def _append(server: _Server, size_bytes: int, payload_mb: int) -> float:
    """The server's milliseconds of CPU per MB."""
    value = os.urandom(size_bytes)
    with _running(server) as (pid, client):
        for stream in range(_STREAMS):
            _call(client, [_command(b"XADD", _key(stream), b"0-1", b"b", b"")])
        before_s = cpu_s(pid)
        for at in range(0, payload_mb * _MB // size_bytes, _AT_ONCE):
            ids = range(at + 1, at + 1 + _AT_ONCE)
            _call(client, [_command(b"XADD", _key(n), b"NOMKSTREAM", b"%d-1" % n, b"b", value) for n in ids])
        return (cpu_s(pid) - before_s) / payload_mb * 1000


@contextlib.contextmanager
def _running(server: _Server) -> Iterator[tuple[int, socket.socket]]:
    options = running_options(server.durability, _MAXMEMORY_BYTES)
    options["appendonly"] = "no" if server.durability == "memory" else "yes"
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, socket.socket(socket.AF_UNIX) as client:
        path = f"{folder}/socket"
        line = command_line(find_binary(), path, Path(folder, "log"), options)
        process = subprocess.Popen(line, cwd=folder, env=os.environ | ALLOCATOR | server.environment)
        try:
            while client.connect_ex(path):
                if process.poll() is not None:
                    raise RuntimeError(f"the server did not start ({server.name}): {Path(folder, 'log').read_text()}")
                time.sleep(0.01)
            yield process.pid, client
        finally:
            process.kill()
            process.wait()


def _key(number: int) -> bytes:
    return b"bench:%d" % (number % _STREAMS)


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


def _call(client: socket.socket, commands: list[bytes]) -> None:
    """Sends commands and waits for their replies, an entry id each: two lines."""
    client.sendall(b"".join(commands))
    replies = b""
    while replies.count(b"\r\n") < 2 * len(commands) and not replies.startswith(b"-"):
        replies += client.recv(1 << 16)
    if b"-ERR" in replies:
        raise RuntimeError(replies.decode())
