"""A Valkey cluster on this machine to try out, made of the embedded binary: servers, replicas, evenly spread slots.

Not for production: all servers share a machine, and dead ones are not restarted. Everything here blocks, so a command
runs it in a thread. The kernel chooses each server's port and bus port, which stay the same over a restart.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM, Signals
from typing import Any, cast

import hiredis

from headrace.store.embedded.data_directory import CannotStart
from headrace.store.embedded.options import ALLOCATOR, Durability, find_binary, running_options
from headrace.store.embedded.ports import HOST, free_ports
from headrace.store.embedded.sweeper import PID_FILE

_SLOTS = 16384
_POLL_S = 0.02
_PATIENCE_S = 60.0
_ANSWER_S = 10.0
_EXIT_S = 20.0
_NODE_TIMEOUT_MS = 2_000
_GIB = 1 << 30


class TrialServer:
    """One Valkey server on a TCP port, with a folder of its own."""

    def __init__(self, folder: Path, options: dict[str, str], *first: str) -> None:
        self.folder = folder
        self.port, self.bus_port = free_ports(2)
        self._first = first
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns once it answers and has loaded its files."""
        options = {"port": str(self.port), "bind": HOST, "logfile": "server.log", **self._options}
        line = [str(self.binary()), *self._first]
        line += [word for name, value in options.items() for word in (f"--{name}", value)]
        env = ALLOCATOR | os.environ
        self._process = subprocess.Popen(
            line, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        wait_until(self._answers, f"the server on port {self.port} does not answer")

    def _answers(self) -> bool:
        if not self.is_running:
            tail = (self.folder / "server.log").read_text(errors="replace")[-500:]
            raise CannotStart(f"the server on port {self.port} ended: {tail}")
        try:
            return bool(self.ask("PING") == b"PONG")
        except (OSError, hiredis.ReplyError):
            return False

    def ask(self, *words: str | int | bytes) -> Any:
        """One command's reply, over a connection of its own; raises what the server refuses."""
        with self.connect() as line:
            line.sendall(hiredis.pack_command(cast("Any", words)))
            reader = hiredis.Reader()
            while (reply := reader.gets()) is False:
                data = line.recv(1 << 16)
                if not data:
                    raise ConnectionResetError(f"{self} closed the connection")
                reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def binary(self) -> Path:
        """The program to start."""
        return find_binary()

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), _ANSWER_S)

    def info(self, section: str) -> dict[str, str]:
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(one.split(":", 1) for one in lines if ":" in one and not one.startswith("#"))

    def send_signal(self, number: Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as a crash does it."""
        self.stop(SIGKILL)

    def stop(self, number: Signals = SIGTERM) -> None:
        """Ends it; by force if it takes too long."""
        if self._process is None:
            return
        if self.is_running:
            self.send_signal(SIGCONT)
            self.send_signal(number)
            try:
                self._process.wait(_EXIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._process = None


class TrialCluster:
    """Primaries with their replicas: `servers` has all primaries first, then the replicas in the same order."""

    def __init__(
        self,
        folder: Path,
        *,
        primaries: int,
        replicas: int,
        durability: Durability = "everysec",
        node_timeout_ms: int = _NODE_TIMEOUT_MS,
    ) -> None:
        self._folder = folder
        self._primaries = primaries
        self._replicas = replicas
        self._options = {
            **running_options(durability, _GIB),
            "appendonly": "no" if durability == "memory" else "yes",
            "cluster-enabled": "yes",
            "pidfile": PID_FILE,
            "cluster-node-timeout": str(node_timeout_ms),
            "cluster-require-full-coverage": "no",  # a shard that is away, or has no primary yet, stops no other
            "repl-diskless-sync-delay": "0",
        }
        self.servers: list[TrialServer] = []
        self._numbers = count()

    @property
    def url(self) -> str:
        """The URL for `--redis`: any server leads to all others."""
        return f"redis+cluster://{','.join(map(repr, self.servers))}"

    @property
    def primaries(self) -> list[TrialServer]:
        """The current primaries."""
        return [one for one in self.servers if one.is_running and one.info("replication")["role"] == "master"]

    def start(self) -> None:
        """Starts all servers and makes them a cluster; CannotStart says what stands in the way."""
        try:
            for _ in range(self._primaries * (1 + self._replicas)):
                self.add_server()
            primaries = self.servers[: self._primaries]
            for at, server in enumerate(primaries):
                first, end = (_SLOTS * one // self._primaries for one in (at, at + 1))
                server.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            for at, server in enumerate(self.servers):
                server.ask("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            self.introduce(*self.servers)
            for at, server in enumerate(self.servers[self._primaries :]):
                server.ask("CLUSTER", "REPLICATE", node_id(primaries[at % self._primaries]))
            wait_until(self.is_whole, "the cluster did not form")
        except BaseException:
            self.stop()
            raise

    def add_server(self) -> TrialServer:
        """One more, that is not part of the cluster yet."""
        # A number of its own: the files of one that was removed would tell it of another time.
        folder = self._folder / f"server-{next(self._numbers)}"
        server = self._new_server(folder, self._options | {"cluster-port": "0"})
        server._options["cluster-port"] = str(server.bus_port)
        self.servers.append(server)
        server.start()
        return server

    def _new_server(self, folder: Path, options: dict[str, str]) -> TrialServer:
        return TrialServer(folder, options)

    def introduce(self, *servers: TrialServer) -> None:
        """Makes servers known to each other, and returns once all are."""
        for server in servers[1:]:
            servers[0].ask("CLUSTER", "MEET", HOST, server.port, server.bus_port)
        known = len(self.servers)
        wait_until(lambda: all(_knows(one, known) for one in servers), "the servers do not find each other")

    def is_whole(self) -> bool:
        """Whether every slot has a server, all agree on that, and replicas are in step."""
        with contextlib.suppress(OSError, hiredis.ReplyError):
            return all(_is_fine(one) for one in self.servers if one.is_running)
        return False

    def stop(self) -> None:
        """Ends all servers, replicas first: none of them is to take over."""
        for server in reversed(self.servers):
            server.stop()


def node_id(server: TrialServer) -> str:
    return str(server.ask("CLUSTER", "MYID").decode())


def _knows(server: TrialServer, known: int) -> bool:
    rows = server.ask("CLUSTER", "NODES").decode().splitlines()
    return len(rows) >= known and not any("handshake" in row for row in rows)


def _is_fine(server: TrialServer) -> bool:
    if b"cluster_state:ok" not in server.ask("CLUSTER", "INFO"):
        return False
    facts = server.info("replication")
    return facts["role"] == "master" or facts["master_link_status"] == "up"


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    """Returns once something holds; CannotStart if it takes too long."""
    for _ in range(round(_PATIENCE_S / _POLL_S)):
        if holds():
            return
        threading.Event().wait(_POLL_S)
    raise CannotStart(otherwise)
