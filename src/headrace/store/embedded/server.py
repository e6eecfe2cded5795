"""The embedded Valkey's life cycle: start, adopt, keep running, stop; never two on one data directory.

The server outlives a killed broker on purpose: with `everysec` the last second is only in its memory. So the next
broker adopts it, or stops it first. A lock on the directory proves that a server is alive: the server inherits it and
the kernel drops it with the server, whoever started it and however it ended. Pids and files only help to find it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from pathlib import Path

import hiredis

from headrace.store.embedded.continuity import begin_run, resume_run, stop_run
from headrace.store.embedded.control import ControlLine, knock
from headrace.store.embedded.data_directory import CannotStart, DataDirectory, ServerRecord
from headrace.store.embedded.options import (
    ALLOCATOR,
    DEFAULT_DURABILITY,
    Durability,
    command_line,
    find_binary,
    memory_share_bytes,
    running_options,
)
from headrace.store.embedded.socket import (
    choose_socket_path,
    is_private,
    is_server,
    make_room_for_socket,
    remove_socket,
    remove_stale_socket,
)

__all__ = ["CannotStart", "Durability", "EmbeddedValkey"]

log = logging.getLogger(__name__)

_POLL_S = 0.002
_ANSWER_PATIENCE_S = 5.0
"""How long a server that lives may leave us without any answer (one that loads its file does answer)."""
_LOADING_REPORT_S = 5.0
_EXIT_PATIENCE_S = 15.0
"""How long a server may take to write out and exit before it is killed."""
_STEADY_S = 60.0
"""A server that ran this long and died is not in a crash loop."""
_REWRITE_UNDER_WAY = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
_LOOP_AFTER_FAILURES = 3
_AT_ONCE_FAILURES = 5
"""So many times within `_STEADY_S` a server is started again without a pause."""
_BACK_OFF_S, _BACK_OFF_MAX_S = 0.05, 1.0
"""Later ones wait, well below the time that a node's lease lasts."""
_CLOSE_PATIENCE_S = 0.1
"""How long after its last connection a dying server may still hold its lock."""


class EmbeddedValkey:
    """The Valkey server of one data directory. `start()` and `stop()` run on the broker's event loop."""

    def __init__(self, data_dir: Path, *, durability: Durability = DEFAULT_DURABILITY, maxmemory_bytes: int) -> None:
        self._data_dir = data_dir
        self._durability = durability
        self._options = running_options(durability, maxmemory_bytes or memory_share_bytes())
        self._directory: DataDirectory | None = None
        self._server_lock: int | None = None  # held by us only while no server lives
        self._process: subprocess.Popen[bytes] | None = None
        self._line: ControlLine | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.socket_path = ""
        self.pid = 0
        self.adopted = False
        self.restarts = 0

    @property
    def url(self) -> str:
        """Where the store's client connects; stays the same when the server is restarted."""
        return f"unix://{self.socket_path}"

    async def start(self) -> None:
        """Claim the data directory and return once the server has loaded its log and answers."""
        self._binary = find_binary()
        self._directory = DataDirectory.claim(self._data_dir)
        try:
            await self._adopt_or_launch()
        except BaseException:
            try:
                # An earlier broker's server is left alone: what it holds is not ours to end on a failure.
                if self._process is not None or self._server_gone():
                    await self._shut_down()
            finally:
                self._let_go()
            raise
        self._supervisor = asyncio.create_task(self._supervise(), name="embedded-valkey")

    async def stop(self) -> None:
        """End the server with everything written and synced, and give the data directory back."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            for outcome in await asyncio.gather(self._supervisor, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.error("the embedded server was no longer supervised", exc_info=outcome)
            self._supervisor = None
        if self._directory is not None:
            try:
                await self._shut_down()
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self._hang_up()
        if self._server_lock is not None:
            os.close(self._server_lock)
            self._server_lock = None
        self._claimed().release()
        self._directory = self._process = None
        self.socket_path, self.pid, self.adopted = "", 0, False

    async def _adopt_or_launch(self) -> None:
        if not self._server_gone():
            if await self._adopt():
                return
            await self._end()
        await self._launch()

    # Adopting what an earlier broker left.

    async def _adopt(self) -> bool:
        """Take over the server that lives on our directory, if it is healthy."""
        record = self._claimed().read_record()
        if record is None or not is_private(Path(record.socket).parent):
            return False
        line = self._line = await self._answer(record.socket)
        try:
            if line is not None and await self._take_over(line, record.socket):
                return True
        except (OSError, KeyError, hiredis.ReplyError) as e:
            log.warning("the embedded server of an earlier broker cannot be adopted: %s", e)
        self._hang_up()
        return False

    async def _take_over(self, line: ControlLine, path: str) -> bool:
        if not _same_file(os.fsdecode(await line.config("dir")), self._claimed().valkey):
            return False
        pid = int((await line.info("server"))["process_id"])
        await line.configure(self._options)
        self.pid, self.socket_path = pid, path
        self._claimed().write_record(ServerRecord(path, pid))
        self.adopted = self._process is None or self._process.pid != pid
        await self._apply_durability(line)
        if self.adopted:
            log.info("adopted the embedded server of an earlier broker", extra={"pid": pid})
        return True

    async def _apply_durability(self, line: ControlLine) -> None:
        """Switch the append-only file on or off; on means that it holds everything when we return.

        Off leaves the file as it is: a later run with durability finds what was durable, and not less.
        """
        wanted = b"no" if self._durability == "memory" else b"yes"
        if await line.config("appendonly") == wanted:
            return
        await line.configure({"appendonly": wanted.decode()})
        while wanted == b"yes":
            state = await line.info("persistence")
            if all(state[name] == "0" for name in _REWRITE_UNDER_WAY):
                if state["aof_last_bgrewrite_status"] == "ok":
                    return
                tail = self._claimed().log_tail()
                raise CannotStart(f"the embedded server could not write its log to disk: {tail}")
            await asyncio.sleep(_POLL_S)

    # Starting one.

    async def _launch(self) -> None:
        directory = self._claimed()
        is_orderly = directory.read_record() is None  # else the last server was not stopped by its broker
        self._clear_the_way()
        self._process = self._spawn()
        self.pid, self.adopted = self._process.pid, False
        directory.write_record(ServerRecord(self.socket_path, self.pid))
        self._line = await self._answer(self.socket_path)
        if self._line is None:
            raise CannotStart(f"the embedded server did not start: {directory.log_tail() or 'it printed nothing'}")
        await begin_run(self._line, is_orderly=is_orderly)
        await self._apply_durability(self._line)

    def _clear_the_way(self) -> None:
        """Prepare the socket's directory, and remove leftovers of a killed server: its socket and rewrite drafts."""
        directory = self._claimed()
        if not self.socket_path:
            remove_stale_socket(directory.read_record())
            self.socket_path = choose_socket_path()
        # Recorded before anything is there: if we are killed half-way, the next broker finds what we made.
        directory.write_record(ServerRecord(self.socket_path, 0))
        make_room_for_socket(self.socket_path)
        for draft in directory.valkey.rglob("temp-*"):
            draft.unlink(missing_ok=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start the server and hand it the lock on its directory."""
        directory, lock = self._claimed(), self._server_lock
        assert lock is not None
        # With `memory` an earlier, durable log is loaded as well; writing it ends once it is loaded.
        loads_file = self._durability != "memory" or any(directory.valkey.glob("appendonlydir/*.manifest"))
        options = {**self._options, "appendonly": "yes" if loads_file else "no"}
        try:
            with directory.valkey_log.open("ab") as output:
                process = subprocess.Popen(
                    command_line(self._binary, self.socket_path, directory.valkey_log, options),
                    cwd=directory.valkey,
                    env=ALLOCATOR | os.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(lock,),
                    start_new_session=True,  # Ctrl-C is for the broker, which ends the server last
                )
        except OSError as e:
            raise CannotStart(f"the embedded server {self._binary} cannot be run: {e.strerror}") from None
        os.close(lock)
        self._server_lock = None
        return process

    async def _answer(self, path: str) -> ControlLine | None:
        """A line to the server once it has loaded its log; None if it is gone or stays silent."""
        loop = asyncio.get_running_loop()
        heard_at = logged_at = loop.time()
        while not self._server_gone() and loop.time() - heard_at < _ANSWER_PATIENCE_S:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(_ANSWER_PATIENCE_S):
                    answer = await knock(path)
                if isinstance(answer, ControlLine):
                    return answer
                heard_at = loop.time()
                if heard_at - logged_at > _LOADING_REPORT_S:
                    logged_at = heard_at
                    log.info("the embedded server is loading its log", extra={"percent": answer})
            await asyncio.sleep(_POLL_S)
        return None

    # Ending one.

    def _server_gone(self) -> bool:
        """Whether no server lives on our directory; if so, its lock is ours from now on."""
        if self._server_lock is None:
            self._server_lock = self._claimed().lock_valkey()
            if self._server_lock is not None and self._process is not None:
                # An ending process drops its lock an instant before it can be waited for.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=0.1)
        return self._server_lock is not None

    async def _gone_within(self, patience_s: float) -> bool:
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            if self._server_gone():
                return True
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_POLL_S)

    async def _shut_down(self) -> None:
        """Stop the server, if it is running, and remove its socket and state file."""
        if not self._server_gone() and self.socket_path:
            await self._ask_to_end()
        if not self._server_gone():
            await self._end()
        if self.socket_path:
            remove_socket(self.socket_path)
        self._claimed().forget_record()

    async def _ask_to_end(self) -> None:
        """SHUTDOWN acts at once, a signal only at the server's next tick."""
        self._hang_up()  # a call may have been cancelled half-way: its reply would be taken for ours
        try:
            async with asyncio.timeout(_EXIT_PATIENCE_S):
                self._line = await ControlLine.open(self.socket_path)
                await stop_run(self._line)
                refusal = await self._line.call("SHUTDOWN")
                log.warning("the embedded server refused to shut down", extra={"reply": str(refusal)})
                await resume_run(self._line)
        except OSError:
            await self._gone_within(_EXIT_PATIENCE_S)

    async def _end(self) -> None:
        """End by signal the server that lives on our directory."""
        record = ServerRecord(self.socket_path, self.pid) if self.pid else self._claimed().read_record()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if record is not None and is_server(record.pid, record.socket):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(record.pid, number)
            if await self._gone_within(_EXIT_PATIENCE_S):
                return
        raise CannotStart(
            f"another process holds {self._claimed().valkey} and is not known to us; "
            f"`lsof {self._claimed().valkey}` names it: end it and start again"
        )

    # Keeping it running.

    async def _supervise(self) -> None:
        """Bring the server back whenever it dies; a crash loop slows down and is reported once."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(_STEADY_S if failures else None):
                    await self._end_of_line()
            except TimeoutError:
                if failures >= _LOOP_AFTER_FAILURES:
                    log.info("the embedded server is stable again", extra={"pid": self.pid})
                failures = 0
                continue
            was_running = True
            while self._line is None:
                if failures >= _AT_ONCE_FAILURES:
                    doubled = min(failures - _AT_ONCE_FAILURES, 10)
                    await asyncio.sleep(min(_BACK_OFF_S * 2**doubled, _BACK_OFF_MAX_S))
                try:
                    if await self._gone_within(_CLOSE_PATIENCE_S):
                        self.restarts += 1
                        if was_running:
                            failures += 1
                            self._report(failures, f"ended ({self._exit()})")
                    was_running = False
                    await self._adopt_or_launch()
                except (CannotStart, OSError, KeyError, hiredis.ReplyError) as e:
                    self._hang_up()
                    failures += 1
                    self._report(failures, f"is not running: {e}")

    async def _end_of_line(self) -> None:
        """Wait until our line breaks: the server is gone, or somebody closed the line."""
        if self._line is not None:
            await self._line.closed()
            self._hang_up()

    def _exit(self) -> str:
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return "exit unknown"
        return f"signal {-code}" if code < 0 else f"exit {code}"

    def _report(self, failures: int, what: str) -> None:
        if failures < _LOOP_AFTER_FAILURES:
            log.warning("the embedded server %s; restarting it", what, extra={"pid": self.pid})
        elif failures == _LOOP_AFTER_FAILURES:
            log.error(
                "the embedded server %s; it keeps failing and is restarted every %d s at most; its log ends: %s",
                what,
                _BACK_OFF_MAX_S,
                self._claimed().log_tail(),
                extra={"pid": self.pid},
            )

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _claimed(self) -> DataDirectory:
        assert self._directory is not None
        return self._directory


def _same_file(one: str, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
