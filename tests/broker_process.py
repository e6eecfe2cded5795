"""Brokers and Redis servers as processes of their own, for tests that speak to them from outside.

A broker is started as a user starts it (`headrace serve`), so a test sees its output, its exit code and its memory,
and can kill it. Whatever a test starts is ended by the fixture that made it, embedded servers of killed brokers too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import ClassVar

from headrace.store.embedded.ports import free_ports
from tests.forked import Forked, fork
from tests.server_binary import server_binary

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_COMMAND = ["-c", "from headrace.cli.main import main; main()", "serve"]


class BrokerProcess:
    """`headrace serve` with a data directory and a port that stay the same over restarts."""

    is_forked: ClassVar = False
    """Whether the time for imports is saved (forked.py): under pytest. Benchmarks start it as a user does."""

    def __init__(self, data_dir: Path, **settings: object) -> None:
        self.data_dir = data_dir
        self.settings = {"port": free_port(), "maxmemory_bytes": 1 << 30} | settings
        if "http_port" in settings:
            self.settings.setdefault("console", False)  # the node's own pages, unless the test is about the console
        if "listen" in settings and "port" not in settings:
            del self.settings["port"]
        self.environment: dict[str, str] = {}
        self.python = sys.executable
        self.log_path = data_dir.with_suffix(".log")
        self.host = "127.0.0.1"
        self.port = 0
        self._process: subprocess.Popen[str] | Forked | None = None

    @property
    def address(self) -> str:
        """HOST:PORT, as clients want it."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def valkey_pid(self) -> int:
        """The embedded server's process."""
        found: int = json.loads((self.data_dir / "valkey.json").read_text())["pid"]
        return found

    @property
    def log(self) -> str:
        """What it wrote to stderr since its first start."""
        return self.log_path.read_text()

    def start(self) -> BrokerProcess:
        """Starts it and returns once it is ready."""
        flags = [f"--data-dir={self.data_dir}"]
        for name, value in self.settings.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                flags.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                flags += [f"--{flag}={one}" for one in (value if isinstance(value, list) else [value])]
        environment = os.environ | self.environment
        with self.log_path.open("a") as log:
            if self.is_forked:
                self._process = fork(["serve", *flags], environment, log.fileno())
            else:
                command = [self.python, *_COMMAND, *flags]
                self._process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
                )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("headrace ready on "):
            raise AssertionError(f"the broker did not start: {line!r}\n{self.log}")
        self.port = int(line.rsplit(":", 1)[1])
        if "port" in self.settings:
            self.settings["port"] = self.port
        return self

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.send_signal(Signals.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(Signals.SIGKILL)
        self.wait()

    def send_signal(self, number: Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code, once it has ended."""
        assert self._process is not None
        return self._process.wait(STOP_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory of the broker's process, without its server."""
        return rss_bytes(self.pid)

    def end(self) -> None:
        """Ends whatever is left of it."""
        if self._process is None:
            return
        if self.is_running:
            self.send_signal(Signals.SIGCONT)
            self.send_signal(Signals.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._end_embedded_server()

    def _end_embedded_server(self) -> None:
        """A broker that was killed leaves its server running for the next one."""
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((self.data_dir / "valkey.json").read_text())
            if record["socket"].encode() in Path(f"/proc/{record['pid']}/cmdline").read_bytes():
                os.kill(record["pid"], Signals.SIGKILL)
                shutil.rmtree(Path(record["socket"]).parent)


class RedisProcess:
    """A Valkey server of one's own on a TCP port, as an operator would run it beside the brokers."""

    def __init__(self, directory: Path, durability: str = "always") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self._durability = durability
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> RedisProcess:
        """Starts it and returns once it answers."""
        command = [
            str(server_binary()), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory),
            "--appendonly", "yes", "--appendfsync", self._durability, "--save", "", "--logfile", "server.log",
        ]  # fmt: skip
        self._process = subprocess.Popen(command)
        wait_until(self._answers, f"no answer of Redis on port {self.port}")
        return self

    def send_signal(self, number: Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: Signals = Signals.SIGTERM) -> None:
        """Ends it with a signal."""
        assert self._process is not None
        self.send_signal(Signals.SIGCONT)
        self.send_signal(number)
        self._process.wait(STOP_TIMEOUT_S)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop(Signals.SIGKILL)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as line:
            line.settimeout(1)
            line.sendall(b"PING\r\n")
            return line.recv(16) == b"+PONG\r\n"
        return False


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    """A port that was free a moment ago, and that no other test takes."""
    (port,) = free_ports(1)
    return port


def wait_until(holds: Callable[[], bool], otherwise: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Returns once something holds; fails with `otherwise` if it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise)
        time.sleep(0.01)
