"""What goes wrong with one table: that one is tried again and told about, and the others go on at their own pace."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client import Cluster, Reader
from headrace.client.errors import kafka_error
from headrace.client.reader import Fetched
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.archive.troubles import Troubles
from headrace.lake.storage.place import Place, place_of
from headrace.lake.table.snapshot import Identity
from headrace.lake.typed.setting import set_definition
from headrace.schemas.definition import Definition
from headrace.wire.errors import ErrorCode
from tests.broker_process import BrokerProcess, wait_until
from tests.lake.archiving import table_of
from tests.lake.conftest import Topic
from tests.lake.local_jobs import LocalJobs
from tests.lake.other_reader import count_rows

EVEN = Definition("json", {"type": "integer", "multipleOf": 2})


@contextmanager
def archiving(address: str, settings: ArchiveSettings) -> Iterator[list[str]]:
    """An archive that follows its topics while the block runs; what it says."""
    said, stop = list[str](), threading.Event()
    with Cluster(address) as cluster:
        archive = Archive(LocalJobs(), cluster, settings, say=said.append)
        thread = threading.Thread(target=archive.run, args=(stop,))
        thread.start()
        try:
            yield said
        finally:
            stop.set()
            thread.join()


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, is_met: Callable[[Place], bool]) -> Iterator[None]:
    """No file can be written in some places while the block runs."""
    put = Place.put

    def fail(place: Place, path: str, content: pa.Buffer) -> None:
        if is_met(place):
            raise OSError(errno.ENOSPC, "No space left on device")
        put(place, path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Place, "put", fail)
        yield


def test_a_typed_table_without_room_is_tried_again_and_every_try_is_told(
    orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert orders.cluster.cluster_id is not None
    identity = Identity(orders.cluster.cluster_id, orders.name, orders.admin.describe_topic(orders.name).topic_id)
    set_definition(place_of(tmp_path), identity, EVEN)
    orders.send([b"%d" % n for n in range(10)])
    typed, rejects = (Path(f"{table_of(tmp_path, orders.name)}_.{what}") for what in ("typed", "rejects"))
    with archiving(orders.address, ArchiveSettings(place_of(tmp_path), [orders.name], commit_every_s=0.1)) as said:
        with full_disk(monkeypatch, lambda place: "_." in place.uri):
            wait_until(lambda: len(said) == 2, "it is not told")
            assert count_rows(table_of(tmp_path, orders.name)) == 10
        wait_until(lambda: count_rows(typed) == 5, "it is not tried again")
    assert [line for line in said if not line.startswith("the typed table of ")] == []
    assert said[:2] == [
        f"the typed table of {orders.name}: No space left on device; retrying in {pause_s} s" for pause_s in (1, 2)
    ]
    assert count_rows(rejects) == 5


def test_a_table_that_is_tried_again_and_again_does_not_slow_down_the_others(
    orders: Topic, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have enough for a round, and it waits for its next try."""
    monkeypatch.setattr("headrace.lake.archive.loop.pauses", lambda: iter(lambda: 600.0, None))
    other = Topic(broker, f"b{orders.name}", 1)
    settings = ArchiveSettings(place_of(tmp_path), [orders.name, other.name], commit_every_s=600, commit_bytes=1000)
    bad, good = (table_of(tmp_path, topic.name) for topic in (orders, other))
    orders.send([b"x" * 100] * 20)

    def grew(before: int) -> bool:
        return count_rows(good) == before + 20

    with full_disk(monkeypatch, lambda place: place.uri == str(bad)):
        with archiving(orders.address, settings) as said:
            for _ in range(2):
                before = count_rows(good)
                other.send([b"x" * 100] * 20)
                wait_until(partial(grew, before), "the other waits")
            assert said[0] == f"{orders.name}-0: the lake is not writable: No space left on device; retrying in 600 s"
    other.cluster.close()


def test_a_broker_that_cannot_answer_for_a_moment_stops_no_partition(
    orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.send([b"1"])
    fetch, moved = Reader.fetch_raw, kafka_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    failures = iter([moved])

    def fetch_or_fail(reader: Reader, topic: str, partition: int, offset: int) -> Fetched:
        for failure in failures:
            raise failure
        return fetch(reader, topic, partition, offset)

    monkeypatch.setattr(Reader, "fetch_raw", fetch_or_fail)
    with archiving(orders.address, ArchiveSettings(place_of(tmp_path), [orders.name], commit_every_s=0.1)) as said:
        wait_until(lambda: count_rows(table_of(tmp_path, orders.name)) == 1, "it is not archived")
    assert said == [
        f"{orders.name}-0: the broker answers NOT_LEADER_OR_FOLLOWER at offset 0; retrying in 1 s",
    ]


def test_what_stopped_a_topic_is_told_once_and_again_when_it_comes_back() -> None:
    said: list[str] = []
    troubles = Troubles(said.append)

    def round_with(*why: str) -> None:
        troubles.look_again()
        for one in why:
            troubles.stop_topic("orders", [0, 1], one)

    for why in (["a"], ["a", "b"], ["b"], ["a"], [], [], ["a"], ["a"]):
        round_with(*why)
    told = [sentence.removeprefix("orders is not archived: ") for sentence in said]
    assert told == ["a", "b", "a", "a"]
    assert troubles.stopped == {("orders", 0): "a", ("orders", 1): "a"}


def test_a_named_topic_that_is_not_there_is_told_and_the_others_are_archived(orders: Topic, tmp_path: Path) -> None:
    """The command then ends with 1."""
    orders.send([b"1"])
    said: list[str] = []
    settings = ArchiveSettings(place_of(tmp_path), [orders.name, "nope"])
    archive = Archive(LocalJobs(), orders.cluster, settings, say=said.append)
    archive.run_once()
    assert (archive.topics.absent, said) == (["nope"], ["there is no topic nope yet"])
    assert count_rows(table_of(tmp_path, orders.name)) == 1
