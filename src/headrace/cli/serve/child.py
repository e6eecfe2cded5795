"""One node of a supervisor: its process, restarted whenever it ends.

The first start must succeed: its error is shown to whoever started the supervisor. Later starts are retried with
growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from typing import Final

from headrace.cli.serve.orders import Orders, Report, line_of, read_line
from headrace.cli.serve.sockets import Listeners
from headrace.cli.settings.table import Settings
from headrace.store.embedded.data_directory import CannotStart

log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 10.0
_STEADY_S: Final = 60.0
"""A node that ran this long and died is not in a crash loop."""
_FAREWELL_S: Final = 15.0
"""How long a node may take to leave the store, beyond the grace of its requests, before it is killed."""
_STDERR: Final = 2


class ChildNode:
    """A node's process, from `start` to `stop`."""

    def __init__(
        self,
        settings: Settings,
        listeners: Listeners,
        lock: int | None,
        admin_password: str,
        console_socket: str = "",
    ) -> None:
        self._settings = settings
        self._console_socket = console_socket
        self._admin_password = admin_password
        self._listeners: Listeners | None = listeners
        self._lock = [] if lock is None else [lock]
        self._process: asyncio.subprocess.Process | None = None
        self._trouble = ""
        self._serves = False
        self._stopping = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._label: dict[str, int] = {"node": settings.node_id}
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the node accepted connections for the first time, or could not start."""

    def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep(), name=f"node on port {self._settings.port}")

    async def stop(self) -> None:
        """Stops the process gracefully, or kills it if that takes too long."""
        self._stopping.set()
        self._terminate()
        if self._keeping is None:
            self._close_listeners()
            return
        patience_s = self._settings.shutdown_grace_ms / 1000 + _FAREWELL_S
        done, _ = await asyncio.wait([self._keeping], timeout=patience_s)
        if not done and self._process is not None:
            log.warning("a node did not stop in time and is killed", extra=self._label)
            self._process.kill()
        await self._keeping

    async def _keep(self) -> None:
        clock, failures = asyncio.get_running_loop().time, 0
        while not self._stopping.is_set():
            began = clock()
            how = await self._run()
            if self._stopping.is_set():
                break
            if not self.ready.done():
                self.ready.set_exception(CannotStart(self._trouble or f"a node did not start ({how})"))
                break
            failures = 1 if clock() - began > _STEADY_S else failures + 1
            pause_s = min(_PAUSE_S * 2 ** min(failures - 1, 10), _PAUSE_MAX_S)
            why = f"{how}: {self._trouble}" if self._trouble else how
            log.warning("a node exited; restarting it", extra=self._label | {"why": why, "pause_s": pause_s})
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _run(self) -> str:
        """Runs the process once; returns how it ended."""
        self._trouble, self._serves = "", False
        ours, theirs = socket.socketpair()
        descriptors = self._listeners.descriptors if self._listeners else []
        with theirs:
            try:
                self._process = await self._spawn(theirs.fileno(), descriptors)
            except OSError as error:
                ours.close()
                return f"it cannot be run: {error.strerror}"
        self._close_listeners()  # they are the node's now: while it is down, connections are to be refused
        if self._stopping.is_set():
            self._terminate()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            orders = Orders.of(self._settings, descriptors, self._admin_password, self._console_socket)
            writer.write(line_of(orders))
            await self._listen_to(reader)
            code = await self._process.wait()
        finally:
            writer.close()
        return f"signal {-code}" if code < 0 else f"exit {code}"

    async def _spawn(self, lifeline: int, descriptors: list[int]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace.cli.serve.node_process", str(lifeline)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,
            pass_fds=[lifeline, *descriptors, *self._lock],
            start_new_session=True,  # Ctrl-C is for the supervisor, which stops the nodes
        )

    async def _listen_to(self, reader: asyncio.StreamReader) -> None:
        """Reads messages from the node until it is gone."""
        try:
            async for line in reader:
                report = read_line(line, Report)
                if report.trouble:
                    self._trouble = report.trouble
                    continue
                self._label, self._serves = {"node": report.node_id}, True
                if self.ready.done():
                    log.info("a node is back", extra=self._label)
                else:
                    self.ready.set_result(None)
        except ConnectionError:
            return  # killed before it read its orders

    def pass_on(self, number: signal.Signals) -> None:
        """Sends the process a signal if it serves; while it starts, it may have no handler yet and would die of it."""
        if self._serves:
            self._send(number)

    def _terminate(self) -> None:
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def _close_listeners(self) -> None:
        if self._listeners is not None:
            self._listeners.close()
            self._listeners = None
