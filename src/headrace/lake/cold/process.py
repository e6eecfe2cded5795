"""The process that reads cold records for a broker: `python -m headrace.lake.cold.process FD`, started by log.py.

It answers requests on the socket FD, several at a time, and exits when the socket closes, however the broker ended. It
has a lower priority than the broker, and on a busy machine only a share of a core (cpu_share.py), so cold reads do not
slow down hot ones. Memory is bounded by the cached row
groups, those being read, and the responses waiting for the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import msgspec
import pyarrow as pa
import uvloop
from deltalake.exceptions import DeltaError

from headrace.cold_log import ColdAway, Held
from headrace.lake.cold import frames
from headrace.lake.cold.cpu_share import LONGEST_WAIT_S, CpuShare
from headrace.lake.cold.describing import describe_table
from headrace.lake.cold.forward import ForwardReader
from headrace.lake.cold.row_groups import FileCache
from headrace.lake.cold.search import TimeSearch, retained_start
from headrace.lake.cold.tables import KnownTables, NothingHeld, why_nothing
from headrace.lake.records.encode import warm_up
from headrace.lake.storage.place import place_of, reason
from headrace.lake.table.snapshot import Snapshot
from headrace.wire.schema import Buffer

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS = 4
NICENESS = 10
GIVE_UP_S = 10.0
"""A table that does not answer within this time, or within the broker's own timeout if that is longer, counts as
unavailable. The work continues, and the next request may find it done."""

_PR_SET_PDEATHSIG = 1


def impatient(give_up_s: float) -> dict[str, str]:
    """Default options for object stores.

    delta-rs holds the GIL while it waits for one, which blocks all other requests, and by default it would retry for
    three minutes. So a request and its retry end before we give up on the table.
    """
    request = f"{max(1, int(0.4 * give_up_s))}s"
    return {"timeout": request, "connect_timeout": "2s", "max_retries": "1", "retry_timeout": request}


class ColdServer:
    """The requests of one broker."""

    def __init__(self, lake: frames.OpenLake) -> None:
        self._give_up_s = max(GIVE_UP_S, lake.patience_s)
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="cold")
        self._lake = place_of(lake.uri, lake.storage_options)
        if not self._lake.is_local:
            self._lake = place_of(lake.uri, impatient(self._give_up_s) | dict(self._lake.options))
        self._files = FileCache()
        self._tables = KnownTables(self._lake, lake.cluster_id, self._executor)
        longest_wait_s = min(LONGEST_WAIT_S, (lake.patience_s or GIVE_UP_S) / 4)
        share = CpuShare(lake.cpu_percent, longest_wait_s=longest_wait_s)
        self._forward = ForwardReader(self._tables, self._files, self._executor, share)

    async def answer(self, ask: frames.Ask) -> tuple[frames.Say, Sequence[Buffer]]:
        """The response, and its batches."""
        try:
            async with asyncio.timeout(self._give_up_s):
                if isinstance(ask, frames.AskRead):
                    read = await self._forward.read(ask.partition, ask.offset, ask.stop, ask.max_bytes)
                    return frames.SayRead(read.next_offset, [len(batch) for batch in read.batches]), read.batches
                return await self._say(ask), []
        except TimeoutError:
            return frames.SayAway(f"The lake in {self._lake} did not answer within {self._give_up_s:g} s."), []
        except ColdAway as away:
            return frames.SayAway(str(away)), []
        except NothingHeld as nothing:
            return frames.SayAway(str(nothing)), []
        except Exception as error:
            log.exception("A cold read failed: %r", ask)
            return frames.SayAway(f"{type(error).__name__}: {error}"), []

    async def _say(self, ask: frames.Ask) -> frames.Say:
        match ask:
            case frames.AskHeld():
                return await self._held(ask)
            case frames.AskTable():
                snapshot = await self._tables.young(ask.partition)
                return frames.SayTable(await self._in_thread(partial(describe_table, snapshot)))
            case frames.AskTime():
                return frames.SayFound(await self._find(ask))
            case frames.AskRetained():
                snapshot = await self._tables.covering(ask.partition, ask.first, ask.stop)
                return frames.SayStart(await self._in_thread(partial(retained_start, snapshot, ask)))
            case _:
                await self._in_thread(self._look_at_lake)
                return frames.SayReady()

    async def _held(self, ask: frames.AskHeld) -> frames.Say:
        look = self._tables.fresh if ask.fresh else self._tables.young
        try:
            snapshot = await look(ask.partition)
        except NothingHeld as nothing:
            return frames.SayHeld(None, str(nothing))
        files = snapshot.of(ask.partition.number).last_stretch()
        if not files:
            return frames.SayHeld(None, why_nothing(snapshot, ask.partition))
        return frames.SayHeld(Held(files[0].start, files[-1].end, sum(file.size_bytes for file in files)), None)

    async def _find(self, ask: frames.AskTime) -> tuple[int, int] | None:
        """Searches by time; if a file is missing, once more with a new snapshot."""
        try:
            return await self._search(ask, await self._tables.covering(ask.partition, ask.first, ask.stop))
        except FileNotFoundError:
            self._files.forget()
        try:
            return await self._search(ask, await self._tables.covering(ask.partition, ask.first, ask.stop, fresh=True))
        except FileNotFoundError as error:
            raise ColdAway(f"A file of the table of {ask.partition.topic} is missing: {reason(error)}") from None

    async def _search(self, ask: frames.AskTime, snapshot: Snapshot) -> tuple[int, int] | None:
        search = TimeSearch(self._files, snapshot, ask.partition.number, ask.first, ask.stop)
        return await self._in_thread(
            search.newest if ask.timestamp is None else partial(search.at_or_after, ask.timestamp)
        )

    async def _in_thread(self, look: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, look)

    def _look_at_lake(self) -> None:
        try:
            if self._lake.is_local:
                with contextlib.suppress(FileNotFoundError):  # the archive creates it
                    os.scandir(self._lake.uri).close()
            else:
                self._lake.folders()
        except (OSError, DeltaError, pa.ArrowException) as error:
            raise ColdAway(f"The lake in {self._lake} cannot be read: {reason(error)}") from None


class _Connection:
    """The broker's end of the socket: frames in, frames out."""

    def __init__(self) -> None:
        self._server: ColdServer | None = None
        self._questions = msgspec.msgpack.Decoder(frames.OpenLake | frames.Question)
        self._answering: set[asyncio.Task[None]] = set()
        self._protocol = frames.FrameProtocol(self._on_frame, self._on_lost)
        self._transport: asyncio.Transport | None = None

    async def serve(self, fd: int) -> None:
        """Answers until the socket closes, which ends the process."""
        loop = asyncio.get_running_loop()
        line = socket.socket(fileno=fd)
        line.setblocking(False)
        self._transport, _ = await loop.create_connection(lambda: self._protocol, sock=line)
        await loop.create_future()

    def _on_frame(self, message: memoryview, _: memoryview) -> None:
        said = self._questions.decode(message)
        task = asyncio.create_task(self._open(said) if isinstance(said, frames.OpenLake) else self._answer(said))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _on_lost(self) -> None:
        # Threads may be in the middle of a read that nobody needs any more.
        os._exit(0)

    async def _open(self, lake: frames.OpenLake) -> None:
        try:
            self._server = ColdServer(lake)
        except ValueError as error:
            await self._send(frames.Answer(0, frames.SayAway(str(error))), [])
            return
        warm_up()
        await self._send(frames.Answer(0, frames.SayReady()), [])

    async def _answer(self, question: frames.Question) -> None:
        assert self._server is not None
        say, batches = await self._server.answer(question.ask)
        await self._send(frames.Answer(question.number, say), batches)

    async def _send(self, answer: frames.Answer, batches: Sequence[Buffer]) -> None:
        assert self._transport is not None
        await self._protocol.drained()
        self._transport.writelines([frames.frame(answer, sum(map(len, batches))), *batches])


def _end_with_parent(parent: int) -> None:
    """Has the kernel end this process with its parent, even if the event loop hangs. Only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def main() -> None:
    """Serves the socket whose descriptor is the first argument."""
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    _end_with_parent(parent)
    # Ctrl-C goes to the whole process group; the broker finishes its work and then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2 * THREADS)
    uvloop.run(_Connection().serve(fd))


if __name__ == "__main__":
    main()
