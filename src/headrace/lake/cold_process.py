"""The process that reads cold records for a broker: `python -m headrace.lake.cold_process FD`, started by cold.py.

It answers the questions that come over the socket FD, several at a time, and ends when that closes, which it does
when the broker ends in whatever way. It is nicer than the broker: who reads old records does not slow down who reads
new ones. Memory is bounded by the pieces that are kept, the row groups that are read at once, and the answers that wait
for the socket.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import pyarrow as pa
import uvloop
from deltalake.exceptions import DeltaError

from headrace.cold_log import ColdAway
from headrace.lake import cold_frames as frames
from headrace.lake.cold_files import ColdFiles
from headrace.lake.cold_reading import ColdReading
from headrace.lake.cold_search import TimeSearch, retained_start
from headrace.lake.cold_table import ColdTables, NothingHeld, Snapshot
from headrace.lake.encode import warm_up
from headrace.lake.place import place_of, reason
from headrace.wire.compression import Buffer

log = logging.getLogger(__name__)

THREADS = 4
NICENESS = 10
GIVE_UP_S = 10.0
"""A table that does not answer for so long is away. The work goes on, and the next to ask may find it done."""

IMPATIENT = {"timeout": "4s", "connect_timeout": "2s", "max_retries": "1", "retry_timeout": "4s"}
"""What object stores get unless the options say otherwise. delta-rs holds the GIL while it waits for one, which keeps
every other question waiting too, and by itself it would try for three minutes."""

_PR_SET_PDEATHSIG = 1


class ColdServer:
    """The questions of one broker."""

    def __init__(self, lake: frames.OpenLake) -> None:
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="cold")
        self._lake = place_of(lake.uri, lake.storage_options)
        if not self._lake.is_local:
            self._lake = place_of(lake.uri, IMPATIENT | dict(self._lake.options))
        self._files = ColdFiles()
        self._tables = ColdTables(self._lake, lake.cluster_id, self._executor)
        self._reading = ColdReading(self._tables, self._files, self._executor)

    async def answer(self, ask: frames.Ask) -> tuple[frames.Say, Sequence[Buffer]]:
        """What to say, and the batches that go with it."""
        try:
            async with asyncio.timeout(GIVE_UP_S):
                if isinstance(ask, frames.AskRead):
                    read = await self._reading.read(ask.partition, ask.offset, ask.stop, ask.max_bytes)
                    contents = [batch.content for batch in read.batches]
                    return frames.SayRead(read.next_offset, [len(content) for content in contents]), contents
                return await self._say(ask), []
        except TimeoutError:
            return frames.SayAway(f"The lake in {self._lake} did not answer within {GIVE_UP_S:.0f} s."), []
        except ColdAway as away:
            return frames.SayAway(str(away)), []
        except NothingHeld as nothing:
            return frames.SayAway(str(nothing)), []
        except Exception as error:
            log.exception("A question about cold records failed: %r", ask)
            return frames.SayAway(f"{type(error).__name__}: {error}"), []

    async def _say(self, ask: frames.Ask) -> frames.Say:
        match ask:
            case frames.AskHeld():
                return await self._held(ask)
            case frames.AskTime():
                return frames.SayFound(await self._find(ask))
            case frames.AskRetained(partition, first, stop, oldest_ms, most_bytes):
                snapshot = await self._tables.covering(partition, first, stop)
                covered = snapshot.files(partition).span(partition, first, stop)
                return frames.SayStart(retained_start(covered, snapshot.newest_ms, first, stop, oldest_ms, most_bytes))
            case _:
                await asyncio.get_running_loop().run_in_executor(self._executor, self._look_at_lake)
                return frames.SayReady()

    async def _held(self, ask: frames.AskHeld) -> frames.Say:
        look = self._tables.fresh if ask.fresh else self._tables.young
        try:
            snapshot = await look(ask.partition)
        except NothingHeld as nothing:
            return frames.SayHeld(None, str(nothing))
        found = snapshot.files(ask.partition)
        if not found.files:
            return frames.SayHeld(None, snapshot.why_nothing(ask.partition))
        return frames.SayHeld(found.held(), None)

    async def _find(self, ask: frames.AskTime) -> tuple[int, int] | None:
        """By time, from a new snapshot once if a file is missing."""
        snapshot = await self._tables.covering(ask.partition, ask.first, ask.stop)
        try:
            return await self._search(ask, snapshot)
        except FileNotFoundError:
            self._files.forget()
        try:
            return await self._search(ask, await self._tables.fresh(ask.partition))
        except FileNotFoundError as error:
            raise ColdAway(f"A file of the table of {ask.partition.topic} is missing: {reason(error)}") from None

    async def _search(self, ask: frames.AskTime, snapshot: Snapshot) -> tuple[int, int] | None:
        covered = snapshot.files(ask.partition).span(ask.partition, ask.first, ask.stop)
        table = self._tables.place(ask.partition)
        search = TimeSearch(self._files, table, covered, snapshot.newest_ms, ask.first, ask.stop)
        find = search.newest if ask.timestamp is None else partial(search.at_or_after, ask.timestamp)
        return await asyncio.get_running_loop().run_in_executor(self._executor, find)

    def _look_at_lake(self) -> None:
        try:
            if self._lake.is_local:
                with contextlib.suppress(FileNotFoundError):  # the archive makes it
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
        # Threads may be in the middle of a read that nobody wants any more.
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
    """Even if the event loop hangs. Linux only; elsewhere the socket's end has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def main() -> None:
    """Serves the socket whose descriptor is the first argument."""
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    _end_with_parent(parent)
    # Ctrl-C goes to the whole group; the broker finishes what it does and then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2 * THREADS)
    uvloop.run(_Connection().serve(fd))


if __name__ == "__main__":
    main()
