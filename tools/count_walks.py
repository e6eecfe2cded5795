"""Counts the source files that run for one request: `python -m tools.count_walks [--files]`.

A broker and its children run with a profiler (a `sitecustomize` on their PYTHONPATH) that notes files in the order of
their first call. Each request is sent many times after a warm-up; a file counts if it ran every time, so that
background work does not. A room crossing is a step from one top-level room to another in that order.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

from tests.broker_process import BrokerProcess
from tests.lake.local_jobs import LocalJobs
from tests.tiered import BROKER, TieredTopic

from headrace.client import Admin, Cluster, Producer
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.storage.place import place_of
from headrace.wire.frame import request_frame
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import Record, encode_batch

ROUNDS = 12
HOOK = """
import sys, threading, time, os
folder, source, files = os.environ["WALKS"], os.environ["WALKS_SOURCE"], {}
def note(frame, event, _):
    if event == "call" and frame.f_code.co_name != "<module>" and frame.f_code.co_filename.startswith(source):
        files.setdefault(frame.f_code.co_filename[len(source):], None)
def watch():
    last = ""
    while True:
        time.sleep(0.002)
        try:
            now = open(folder + "/round").read()
        except OSError:
            continue
        if now != last:
            if last.startswith("on"):
                with open(f"{folder}/{last}-{os.getpid()}.new", "w") as out:
                    out.write("\\n".join(files))
                os.rename(out.name, out.name[:-4])
            last = now
            files.clear()
            with open(f"{folder}/{now}-{os.getpid()}-seen", "w"):
                pass
threading.setprofile(note)
sys.setprofile(note)
threading.Thread(target=watch, daemon=True).start()
"""


class Walks:
    """Switches the profilers of all processes, and reads what they noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        (folder / "sitecustomize.py").write_text(HOOK)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ |= {"WALKS": str(folder), "WALKS_SOURCE": f"{Path('src/headrace').resolve()}/"}

    def _switch(self, word: str, pids: list[int]) -> str:
        self._number += 1
        name = f"{word}{self._number}"
        (self.folder / "next").write_text(name)
        (self.folder / "next").rename(self.folder / "round")
        while not all((self.folder / f"{name}-{pid}-seen").exists() for pid in pids):
            time.sleep(0.002)
        return name

    def of(self, request: Callable[[], object], pids: list[int]) -> list[list[str]]:
        """Of each process, the files of a request in the order of their first call."""
        found: list[list[list[str]]] = [[] for _ in pids]
        for _ in range(ROUNDS):
            name = self._switch("on", pids)
            request()
            time.sleep(0.03)  # what an answer leaves behind, such as waking others
            self._switch("off", pids)
            for at, pid in enumerate(pids):
                found[at].append((self.folder / f"{name}-{pid}").read_text().split())
        return [[file for file in rounds[-1] if all(file in other for other in rounds)] for rounds in found]


def room(file: str) -> str:
    return file.split("/")[0]


def show(title: str, files: list[str]) -> None:
    crossings = sum(room(one) != room(next_one) for one, next_one in pairwise(files))
    rooms: dict[str, list[str]] = {}
    for file in files:
        rooms.setdefault(room(file), []).append(file.partition("/")[2] or file)
    print(f"{title}: {len(files)} files, {crossings} crossings")
    if "--files" in sys.argv:
        for name, members in rooms.items():
            print(f"  {name:10} {' '.join(members)}")


class Line:
    """A connection that sends frames and waits for their answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._stream = self._socket.makefile("rb")

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._stream.read(4))
        return self._stream.read(size)

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()


def children(pid: int, word: str) -> list[int]:
    """Processes below one whose command line has a word."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if word in Path(f"/proc/{child}/cmdline").read_text()]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        walks = Walks(folder)
        hot_walks(walks, folder)
        cold_walk(walks, folder)
        archive_walk(folder)


def hot_walks(walks: Walks, folder: Path) -> None:
    broker = BrokerProcess(folder / "hot", tail_cache_bytes=4 << 20).start()
    try:
        with Cluster(broker.address) as cluster:
            for topic in ("walks", "large"):
                Admin(cluster).create_topic(topic, 1)
        line, other = Line(broker.port), Line(broker.port)

        def produce(topic: str, size: int) -> bytes:
            record = Record(0, time.time_ns() // 1_000_000, None, bytes(size), [])
            data = [PartitionProduceData(0, memoryview(bytes(encode_batch([record]))))]
            request = ProduceRequest(None, -1, 10_000, [TopicProduceData(name=topic, partition_data=data)])
            return bytes(request_frame(request, 9, 0, "walks"))

        group = OffsetCommitRequest(
            group_id="walks",
            topics=[
                OffsetCommitRequestTopic(
                    name="walks", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
                )
            ],
        )
        commit = bytes(request_frame(group, 8, 0, "walks"))
        appended = 0

        def woken() -> None:
            nonlocal appended
            other.send(fetch("walks", appended, wait_ms=10_000))
            time.sleep(0.02)
            line.ask(produce("walks", 10))
            other.receive()
            appended += 1

        for _ in range(50):
            woken()
            line.ask(produce("large", 100_000))
            line.ask(commit)
            line.ask(fetch("walks", 0))
            line.ask(fetch("large", 0))
        pids = [broker.pid]
        line.ask(produce("walks", 10))
        appended += 1
        show("produce", walks.of(lambda: line.ask(produce("large", 100_000)), pids)[0])
        show("produce, and a fetch that it wakes", walks.of(woken, pids)[0])
        show("fetch from memory", walks.of(lambda: line.ask(fetch("walks", appended - 1)), pids)[0])
        show("fetch from the store", walks.of(lambda: line.ask(fetch("large", 0)), pids)[0])
        show("commit", walks.of(lambda: line.ask(commit), pids)[0])
    finally:
        broker.end()


def fetch(topic: str, offset: int, wait_ms: int = 0) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 16)
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    return bytes(request_frame(request, 11, 0, "walks"))


def cold_walk(walks: Walks, folder: Path) -> None:
    broker = BrokerProcess(folder / "cold", lake=folder / "lake", **BROKER).start()
    try:
        topic = TieredTopic(broker, folder / "lake", "walks")
        topic.fill(40_000)
        line = Line(broker.port)
        offsets = iter(range(0, 20_000, 100))

        def read() -> None:
            frame = fetch("walks", next(offsets), wait_ms=10_000)
            while len(line.ask(frame)) < 1_000:
                pass

        for _ in range(20):
            read()
        of_broker, of_lake = walks.of(read, [broker.pid, *children(broker.pid, "cold")])
        show("cold read, in the broker", of_broker)
        show("cold read, in the lake's process", of_lake)
    finally:
        broker.end()


def archive_walk(folder: Path) -> None:
    """A round with its tasks in this process, without Spark."""

    source, rounds = os.environ["WALKS_SOURCE"], list[list[str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(source) and file not in rounds[-1]:
            rounds[-1].append(file)

    broker = BrokerProcess(folder / "archived").start()
    try:
        with Cluster(broker.address) as cluster:
            Admin(cluster).create_topic("walks", 1)
            archive = Archive(LocalJobs(), cluster, ArchiveSettings(place_of(folder / "tables"), ["walks"]))
            for _ in range(3):
                with Producer(cluster) as producer:
                    producer.send("walks", b"x")
                rounds.append([])
                sys.setprofile(note)
                archive.round()
                sys.setprofile(None)
        show("archive round", [file.removeprefix(source) for file in rounds[-1]])
    finally:
        broker.end()


if __name__ == "__main__":
    main()
