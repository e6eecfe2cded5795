"""The console beside a broker: a process that serves the HTTP port and queries each node over a private socket.

It is restarted whenever it ends; the broker does not depend on it. The port stays open in this process, so a health
probe that arrives while the console starts waits for a moment instead of being refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.cli.serve.listening import is_loopback, listen
from headrace.cli.settings.table import Settings
from headrace.security.listeners import EVERYWHERE, Listener, show_address

if TYPE_CHECKING:
    from headrace.cli.console.process import ConsoleOrders

log = logging.getLogger(__name__)

_PACKAGES: Final = ("starlette", "uvicorn")
_PAUSE_S: Final = 0.2
_PAUSE_MAX_S: Final = 10.0
_STEADY_S: Final = 60.0
_FAREWELL_S: Final = 5.0
_STDERR: Final = 2


def has_packages() -> bool:
    """Whether the extra `headrace[console]` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in _PACKAGES)


def is_wanted(settings: Settings) -> bool:
    """Only on loopback: elsewhere the node answers probes itself, and a console needs explicit protection."""
    return bool(settings.http_port and settings.console and has_packages() and is_loopback(settings.http_host))


class ConsoleChild:
    """The console's process, from `start` to `stop`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listener = listen(settings.http_host, settings.http_port, "--http-")
        self._directory = Path(tempfile.mkdtemp(prefix="headrace-"))
        self._bootstrap: list[Listener] = []
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{show_address(host, port)}"

    def node_socket(self, index: int) -> str:
        """Path of the socket where a node answers the console; accessible to this user only."""
        return str(self._directory / f"node-{index}.sock")

    def start(self, listeners: list[Listener]) -> None:
        self._bootstrap = listeners
        self._keeping = asyncio.create_task(self._keep(), name="console")

    async def stop(self) -> None:
        self._is_stopping = True
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
        if self._keeping is not None:
            done, _ = await asyncio.wait([self._keeping], timeout=_FAREWELL_S)
            if not done:
                if self._process is not None and self._process.returncode is None:
                    self._process.kill()
                self._keeping.cancel()
                await asyncio.wait([self._keeping])
        self._listener.close()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def _keep(self) -> None:
        clock, failures = asyncio.get_running_loop().time, 0
        while not self._is_stopping:
            began = clock()
            how = await self._run()
            if self._is_stopping:
                return
            failures = 1 if clock() - began > _STEADY_S else failures + 1
            pause_s = min(_PAUSE_S * 2 ** min(failures - 1, 10), _PAUSE_MAX_S)
            log.warning("the console exited; restarting it", extra={"why": how, "pause_s": pause_s})
            await asyncio.sleep(pause_s)

    async def _run(self) -> str:
        """Runs the process once; returns how it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "headrace.cli.console.process", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=_STDERR,
                    pass_fds=[theirs.fileno(), self._listener.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                return f"it cannot be run: {error.strerror}"
        with ours:
            if self._is_stopping:
                self._process.terminate()
            with contextlib.suppress(OSError):
                ours.sendall(msgspec.json.encode(self._orders()) + b"\n")
            code = await self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit {code}"

    def _orders(self) -> ConsoleOrders:
        # Imported here, because only the console needs the client.
        from headrace.cli.console.process import ConsoleOrders
        from headrace.client.connection import ClientSecurity
        from headrace.console.settings import ConsoleSettings

        settings = self._settings
        by_login = sorted((one for one in self._bootstrap if one.is_sasl), key=lambda one: one.is_tls)
        listener = (by_login or self._bootstrap)[0]
        console = ConsoleSettings(
            bootstrap=_address(listener),
            security=ClientSecurity(tls=listener.is_tls),
            needs_login=any(one.authenticates for one in self._bootstrap),
            read_only=settings.console_read_only,
            node_sockets=tuple(self.node_socket(index) for index in range(settings.nodes)),
            first_node_id=settings.node_id,
            durability="" if settings.redis else settings.durability,
            own_certificate=settings.tls_cert if listener.is_tls else "",
        )
        return ConsoleOrders(console, self._listener.fileno(), settings.log_level, settings.log_format)


def open_console(settings: Settings, stack: contextlib.AsyncExitStack) -> ConsoleChild | None:
    """The console with its port, to be stopped with the stack; None if none is wanted."""
    if not is_wanted(settings):
        return None
    console = ConsoleChild(settings)
    stack.push_async_callback(console.stop)
    return console


def say_ready(address: str, console: ConsoleChild | None) -> None:
    """Prints the ready line that scripts wait for, and the console's address."""
    print(f"headrace ready on {address}", flush=True)
    if console is not None:
        print(f"console on {console.url}", flush=True)


def listen_privately(path: str) -> socket.socket:
    """A node's socket for the console."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # left behind by a killed node
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def _address(listener: Listener) -> str:
    if listener.advertised is not None:
        return show_address(*listener.advertised)
    return show_address("127.0.0.1" if listener.host in EVERYWHERE else listener.host, listener.port)
