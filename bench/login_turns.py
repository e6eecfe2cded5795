"""The event loop of a broker while many clients log in with PLAIN over TLS at once: the longest of its turns.

The broker is one process and its clients are another (`clients`). A turn is counted by the CPU time of the loop's own
thread, so that other processes do not matter: a callback that asks to be called again in the next turn reads it.

    python -m bench.login_turns 100

prints the longest turn, in milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from tests.broker_process import RedisProcess, free_port
from tests.certificates import Authority

from bench.systems import start_python
from headrace.broker.broker import Broker
from headrace.broker.logins.options import LoginOptions
from headrace.broker.network.server import Server
from headrace.broker.network.tls import Certificates
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.security.listeners import parse_listener
from headrace.security.names import LoginName
from headrace.security.verifiers import SCRAM_SHA_256, User, new_verifier
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store

_HANDSHAKE, _AUTHENTICATE = 17, 36
_PATIENCE_S = 60.0


class TurnMeter:
    """The longest turn of the loop that runs, by its thread's own clock."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._last_s = time.thread_time()
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        self._loop.call_soon(self._turn)


async def longest_turn_ms(logins: int, folder: Path) -> float:
    """Of a broker that so many clients log in to, each for the first time."""
    redis = RedisProcess(folder / "redis", "everysec").start()
    authority = Authority(folder / "tls")
    port = free_port()
    store = Store(parse_address(redis.url), node_at(0, "127.0.0.1", port), StoreOptions())
    await store.start()
    server = Server(Broker(store, BrokerOptions(authorizer="on"), GroupSettings()), LoginOptions())
    certificate, key = authority.sign("broker")
    server.certificates = Certificates(str(certificate), str(key), "")
    try:
        for number in range(logins):
            verifier = new_verifier(SCRAM_SHA_256, _password(number), bytes(20))
            await store.users.update(LoginName("default", f"user-{number}"), _always(User({SCRAM_SHA_256: verifier})))
        await server.start(
            socket.create_server(("127.0.0.1", port)), listeners=[parse_listener(f"in=SASL_SSL://127.0.0.1:{port}")]
        )
        await _clients(port, authority, 1)  # what is made at the first use is there from then on
        gc.collect()
        gc.freeze()  # as the broker does
        meter = TurnMeter()
        await _clients(port, authority, logins)
        return meter.longest_s * 1000
    finally:
        await server.stop()
        await store.close()
        redis.end()


def _always(user: User) -> Callable[[User | None], User]:
    return lambda _: user


def _password(number: int) -> str:
    return f"password-{number}"


async def _clients(port: int, authority: Authority, number: int) -> None:
    arguments = ("clients", str(port), str(authority.ca_file), str(number))
    process = start_python("bench.login_turns", *arguments, stdout=subprocess.PIPE)
    output, _ = await asyncio.to_thread(process.communicate)
    if output.split() != [str(number)]:
        raise RuntimeError(f"of {number} clients, {output or 'none'} logged in")


# -- the clients ------------------------------------------------------------------------------------------------


def clients(port: int, ca_file: str, number: int) -> int:
    """How many logged in, of so many at once."""
    context = ssl.create_default_context(cafile=ca_file)
    together, done = threading.Barrier(number), []

    def log_in(who: int) -> None:
        with socket.create_connection(("127.0.0.1", port), _PATIENCE_S) as plain:
            together.wait()
            with context.wrap_socket(plain, server_hostname="localhost") as line:
                _ask(line, _HANDSHAKE, struct.pack(">h", 5) + b"PLAIN")
                token = f"\0user-{who}\0{_password(who)}".encode()
                if _ask(line, _AUTHENTICATE, struct.pack(">i", len(token)) + token)[:2] == bytes(2):
                    done.append(who)

    threads = [threading.Thread(target=log_in, args=(who,)) for who in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done)


def _ask(line: ssl.SSLSocket, api_key: int, body: bytes) -> bytes:
    """The answer behind its correlation id."""
    content = struct.pack(">hhih", api_key, 1, 0, -1) + body
    line.sendall(struct.pack(">i", len(content)) + content)
    with line.makefile("rb") as answers:
        (size,) = struct.unpack(">i", answers.read(4))
        return answers.read(size)[4:]


def main() -> None:
    if sys.argv[1] == "clients":
        print(clients(int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        print(uvloop.run(longest_turn_ms(int(sys.argv[1]), Path(folder))))


if __name__ == "__main__":
    main()
