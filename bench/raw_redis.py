"""The store's upper bound: the same bytes, read by XRANGE and pushed by pipelined XADD, from one Python process.

It takes the entries that a broker wrote to its stream, so that they are of the very sizes that the broker made of what
its clients sent, and appends them to a stream of its own on the same server. Nothing is faster from Python: hiredis
parses, the commands are put together by hand without copying the entries, and one socket call carries several.
`python -m bench.raw_redis SOCKET KEY` prints what it found as JSON.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Any, cast

import hiredis
import msgspec

from bench.processes import cpu_s
from bench.systems import run_python
from headrace.store.redis.link import parse_info

_KEY = b"bench:raw"
_WINDOW_BYTES = 4 << 20
_READ_BYTES = 1 << 20
_RECEIVE_BYTES = 1 << 20
_BUFFERS_AT_ONCE = 512

Entry = tuple[bytes, list[bytes]]


class Limit(msgspec.Struct):
    """Bytes of the entries, and what it took to write and to read them: time, our CPU, and the server's for writing."""

    size_bytes: int
    entries: int
    write_s: float
    write_cpu_s: float
    write_store_cpu_s: float
    read_s: float
    read_cpu_s: float


def run(store_socket: str, key: str) -> Limit:
    """Measures in a process of its own."""
    return msgspec.json.decode(run_python("bench.raw_redis", store_socket, key), type=Limit)


class _Redis:
    """A blocking connection that sends buffers as they are."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader()

    def send(self, buffers: list[bytes]) -> None:
        for at in range(0, len(buffers), _BUFFERS_AT_ONCE):
            some = buffers[at : at + _BUFFERS_AT_ONCE]
            sent = self._socket.sendmsg(some)
            if sent < sum(map(len, some)):
                self._socket.sendall(b"".join(some)[sent:])

    def receive(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise RuntimeError(str(reply))
        return reply

    def call(self, *words: bytes | str) -> Any:
        self.send([hiredis.pack_command(cast("Any", words))])
        return self.receive()


def _read(redis: _Redis, key: str, count: int) -> list[Entry]:
    """All entries of a stream, `count` at a time."""
    found: list[Entry] = []
    after = b"-"
    while True:
        rows = redis.call("XRANGE", key, after, "+", "COUNT", str(count))
        found += [(row[0], row[1]) for row in rows]
        if len(rows) < count:
            return found
        after = b"(" + rows[-1][0]


def _write(redis: _Redis, entries: list[Entry]) -> None:
    """Appends entries, a window of them under way at a time."""
    buffers: list[bytes] = []
    size = waiting = 0
    head = b"*%d\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$1\r\n*\r\n"
    for _, fields in entries:
        buffers.append(head % (3 + len(fields), len(_KEY), _KEY))
        for value in fields:
            buffers += [b"$%d\r\n" % len(value), value, b"\r\n"]
            size += len(value)
        waiting += 1
        if size >= _WINDOW_BYTES:
            redis.send(buffers)
            for _ in range(waiting):
                redis.receive()
            buffers, size, waiting = [], 0, 0
    redis.send(buffers)
    for _ in range(waiting):
        redis.receive()


def measure(store_socket: str, key: str) -> Limit:
    """Reads a stream, writes it again, forgets the copy."""
    redis = _Redis(store_socket)
    length = redis.call("XLEN", key)
    size = sum(len(value) for value in redis.call("XRANGE", key, "-", "+", "COUNT", "1")[0][1])
    began, cpu = time.perf_counter(), time.process_time()
    entries = _read(redis, key, max(1, _READ_BYTES // max(size, 1)))
    read_s, read_cpu_s = time.perf_counter() - began, time.process_time() - cpu
    server = int(parse_info(redis.call("INFO", "server"))["process_id"])
    began, cpu, store_cpu = time.perf_counter(), time.process_time(), cpu_s(server)
    _write(redis, entries)
    write_s, write_cpu_s, write_store_cpu_s = (
        time.perf_counter() - began,
        time.process_time() - cpu,
        cpu_s(server) - store_cpu,
    )
    assert redis.call("XLEN", _KEY) == length == len(entries)
    redis.call("UNLINK", _KEY)
    size_bytes = sum(len(value) for _, fields in entries for value in fields)
    return Limit(size_bytes, length, write_s, write_cpu_s, write_store_cpu_s, read_s, read_cpu_s)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure(sys.argv[1], sys.argv[2])).decode())
