"""Replay with a real broker and real tables: the topic gets each row once, in its order, whatever comes in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer

from headrace.client import Cluster, Producer, Reader
from headrace.client.batch_sender import BatchSender
from headrace.lake.replay.batches import ReplayBatch, encode_batches
from headrace.lake.replay.origin import HEADER, Origin, find_arrived, with_origin
from headrace.lake.replay.replay import Replay, ReplaySettings, Summary
from headrace.lake.replay.rows import Excerpt, TableRows
from headrace.lake.replay.sending import Overtaken, Sending
from headrace.lake.replay.target import ReplayRefused, find_target
from headrace.lake.storage.place import place_of
from headrace.lake.table.names import folder_of
from headrace.lake.table.table import TopicTable
from headrace.wire.records import Record
from headrace.wire.special_times import EARLIEST
from tests.lake.conftest import Topic
from tests.lake.local_archive import archive_locally

TIMEOUT_S = 60
MAY_FIRST_MS = 1_777_629_600_123


@pytest.fixture
def cluster(orders: Topic) -> Iterator[Cluster]:
    """Another connection than the one that tests look through."""
    with Cluster(orders.address) as made:
        made.refresh([])
        yield made


def fill(orders: Topic, count: int, *, partition: int = 0, first: int = 0) -> None:
    """Records with a key each, their number as the value."""
    with Producer(orders.cluster) as producer:
        for n in range(first, first + count):
            producer.send(orders.name, b"%d" % n, b"key %d" % (n % 50), partition=partition)


def replay(
    table: TopicTable, cluster: Cluster, into: str, settings: ReplaySettings | None = None, *, partitions: int = 2
) -> Summary:
    target = find_target(cluster, table, into, create=True, partitions=partitions)
    return Replay(table, cluster, target, settings or ReplaySettings()).run()


def records(orders: Topic, name: str) -> dict[int, list[Record]]:
    """All records by partition."""
    found: dict[int, list[Record]] = {p.index: [] for p in orders.admin.describe_topic(name).partitions}
    for _, partition, record in Reader(orders.cluster).read({(name, p): EARLIEST for p in found}):
        found[partition].append(record)
    return found


def origin_of(record: Record) -> tuple[int, int]:
    """Source partition and offset, as the last header says."""
    name, value = record.headers[-1]
    assert name == HEADER
    assert value is not None
    partition, offset = value.decode().split("/")[2:4]
    return int(partition), int(offset)


def check_each_once(orders: Topic, into: str, count: int) -> None:
    """All of the source is there once, and what came from one partition into one partition is in its order."""
    per_partition = [[origin_of(record) for record in held] for held in records(orders, into).values()]
    everything = sorted(origin for origins in per_partition for origin in origins)
    assert everything == sorted(set(everything))
    assert len(everything) == count
    for origins in per_partition:
        for source in {source for source, _ in origins}:
            offsets = [offset for partition, offset in origins if partition == source]
            assert offsets == sorted(offsets)


def test_records_come_back_with_all_that_they_had_and_where_they_are_from(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    orders.send([b"lamp"], key=b"k", headers=[("a", b"1"), ("b", None), ("a", b"")], timestamp_ms=MAY_FIRST_MS)
    orders.send([None], key=b"", partition=1)
    orders.send([b""], partition=1)
    table = archive_locally(orders.address, tmp_path, orders.name)
    into = f"{orders.name}-copy"
    before_ms = time.time_ns() // 1_000_000
    done = replay(table, cluster, into, ReplaySettings(partitioner="keep"))
    assert (done.sent, done.already, done.rows) == (3, 0, 3)
    found = records(orders, into)
    prefix = Origin(table.identity).prefix
    (lamp,), (tombstone, empty) = found[0], found[1]
    own = ("headrace.replay", f"{prefix}0/0".encode())
    assert (lamp.key, lamp.value, lamp.headers) == (b"k", b"lamp", [("a", b"1"), ("b", None), ("a", b""), own])
    assert (tombstone.key, tombstone.value, origin_of(tombstone)) == (b"", None, (1, 0))
    assert (empty.key, empty.value, origin_of(empty)) == (None, b"", (1, 1))
    assert lamp.timestamp >= before_ms


def test_keys_go_where_kafkas_own_partitioner_puts_them_and_keyless_rows_stay_together(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    keys = [os.urandom(n % 23) for n in range(200)]
    with Producer(orders.cluster) as producer:
        for n, key in enumerate(keys):
            producer.send(orders.name, b"%d" % n, key, partition=n % 2)
            producer.send(orders.name, b"-", None, partition=n % 2)
    table = archive_locally(orders.address, tmp_path, orders.name)
    into, other = f"{orders.name}-5", f"{orders.name}-theirs"
    replay(table, cluster, into, partitions=5)
    orders.admin.create_topic(other, 5)
    confluent = ConfluentProducer({"bootstrap.servers": orders.address, "partitioner": "murmur2_random"})
    for n, key in enumerate(keys):
        confluent.produce(other, b"%d" % n, key)
    confluent.flush()
    ours, theirs = records(orders, into), records(orders, other)
    for partition in range(5):
        keyed = {(r.key, r.value) for r in ours[partition] if r.key is not None}
        assert keyed == {(r.key, r.value) for r in theirs[partition]}
    assert {p for p, held in ours.items() if any(r.key is None for r in held)} == {0, 1}
    check_each_once(orders, into, 400)


def test_what_the_target_has_is_not_sent_again_but_under_another_name(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    fill(orders, 300)
    table = archive_locally(orders.address, tmp_path, orders.name)
    into = f"{orders.name}-copy"
    assert replay(table, cluster, into).sent == 300
    again = replay(table, cluster, into)
    assert (again.sent, again.already) == (0, 300)
    fill(orders, 100, partition=1, first=300)
    assert replay(archive_locally(orders.address, tmp_path, orders.name), cluster, into).sent == 100
    check_each_once(orders, into, 400)
    assert replay(table, cluster, into, ReplaySettings(run="second")).sent == 300
    assert replay(table, cluster, into, ReplaySettings(run="second")).sent == 0


def test_ranges_of_offsets_and_of_time(orders: Topic, cluster: Cluster, tmp_path: Path) -> None:
    for n in range(10):
        orders.send([b"%d" % n], partition=n % 2, timestamp_ms=MAY_FIRST_MS + n)
    table = archive_locally(orders.address, tmp_path, orders.name)

    def sent(into: str, bounds: Excerpt, partitions: tuple[int, ...] = ()) -> list[int]:
        name = f"{orders.name}-{into}"
        replay(table, cluster, name, ReplaySettings(bounds, partitions))
        return sorted(int(r.value or b"") for held in records(orders, name).values() for r in held)

    assert sent("offsets", Excerpt(from_offset=1, to_offset=3)) == [2, 3, 4, 5]
    assert sent("times", Excerpt(from_ms=MAY_FIRST_MS + 3, to_ms=MAY_FIRST_MS + 6)) == [3, 4, 5]
    assert sent("both", Excerpt(from_offset=1, to_ms=MAY_FIRST_MS + 6)) == [2, 3, 4, 5]
    assert sent("one", Excerpt(to_offset=2), (1,)) == [1, 3]
    assert sent("offsets", Excerpt(to_offset=4)) == list(range(8)), "what overlaps is there once"


def test_times_are_kept_if_asked_and_where_that_cannot_be_it_is_said(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    orders.send([b"old", b"older"], timestamp_ms=MAY_FIRST_MS)
    table = archive_locally(orders.address, tmp_path, orders.name)
    into = f"{orders.name}-copy"
    target = find_target(cluster, table, into, create=True, keep_timestamps=True)
    Replay(table, cluster, target, ReplaySettings(keep_timestamps=True)).run()
    assert [r.timestamp for held in records(orders, into).values() for r in held] == [MAY_FIRST_MS] * 2
    orders.admin.alter_configs(into, {"retention.ms": "1000"})
    with pytest.raises(ReplayRefused, match=r"retention.ms=1000"):
        find_target(cluster, table, into, keep_timestamps=True)
    orders.admin.alter_configs(into, {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(ReplayRefused, match="LogAppendTime"):
        find_target(cluster, table, into, keep_timestamps=True)


def test_the_archived_topic_itself_takes_its_records_only_if_asked_and_only_once(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    fill(orders, 50)
    table = archive_locally(orders.address, tmp_path, orders.name)
    with pytest.raises(ReplayRefused, match="--into-itself"):
        find_target(cluster, table, orders.name)
    target = find_target(cluster, table, orders.name, into_itself=True)
    assert Replay(table, cluster, target, ReplaySettings()).run().sent == 50
    table = archive_locally(orders.address, tmp_path, orders.name)
    again = Replay(table, cluster, target, ReplaySettings()).run()
    assert (again.rows, again.sent, again.already, again.left_out) == (100, 0, 50, 50)


def test_a_target_that_is_not_there_is_made_only_if_asked(orders: Topic, cluster: Cluster, tmp_path: Path) -> None:
    fill(orders, 1)
    table = archive_locally(orders.address, tmp_path, orders.name)
    with pytest.raises(ReplayRefused, match=f"There is no topic {orders.name}-copy: use --create."):
        find_target(cluster, table, f"{orders.name}-copy")
    assert find_target(cluster, table, f"{orders.name}-copy", create=True).partitions == 2


def test_a_record_that_is_too_large_for_the_target_is_named(orders: Topic, cluster: Cluster, tmp_path: Path) -> None:
    orders.send([b"small", b"x" * 5_000])
    table = archive_locally(orders.address, tmp_path, orders.name)
    into = f"{orders.name}-copy"
    orders.admin.create_topic(into, 1, {"max.message.bytes": "2000"})
    with pytest.raises(ReplayRefused, match=r"offset 1 .* max.message.bytes"):
        replay(table, cluster, into)
    orders.admin.alter_configs(into, {"max.message.bytes": "10000"})
    replay(table, cluster, into)
    check_each_once(orders, into, 2)


@pytest.mark.parametrize("late", [1, 2, 3], ids=["smaller", "as large", "larger"])
def test_a_batch_of_an_earlier_run_that_arrives_late_is_noticed(
    late: int, orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    fill(orders, 10)
    table = archive_locally(orders.address, tmp_path, orders.name)
    into = f"{orders.name}-copy"
    replay(table, cluster, into, ReplaySettings(Excerpt(to_offset=5)), partitions=1)
    origin = Origin(table.identity)
    arrived = find_arrived(cluster, into, origin)

    def batch(start: int, count: int) -> ReplayBatch:
        (block,) = TableRows(table, Excerpt(from_offset=start, to_offset=start + count)).blocks()
        headers = with_origin(origin, 0, block.rows.column("offset"), block.rows.column("headers"))
        (encoded,) = encode_batches(block.rows.set_column(4, "headers", headers), 0, 1 << 20, "none")
        return encoded

    # The earlier run's next batch is stored between the look and our first one.
    BatchSender(cluster, into, arrived.producers).send({0: batch(5, late).batch})
    with Cluster(orders.address) as ours, Sending(ours, into, origin, arrived) as sending:
        sending.put({0: batch(6 if late == 2 else 5, 2)})
        with pytest.raises(Overtaken):
            sending.finish()
    replay(table, cluster, into, partitions=1)
    check_each_once(orders, into, 10)


def test_killed_again_and_again_each_record_comes_once_and_in_order(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    for n in range(16):
        fill(orders, 2_500, partition=n % 2, first=2_500 * n)
        archive_locally(orders.address, tmp_path, orders.name)
    into = f"{orders.name}-copy"
    orders.admin.create_topic(into, 3)
    for rows in (10_000, 20_000):
        command = [sys.executable, "-m", "tests.lake.killed_replay", orders.address, str(tmp_path), orders.name, into]
        killed = subprocess.run([*command, str(rows)], check=False, timeout=TIMEOUT_S)
        assert killed.returncode == -signal.SIGKILL
    assert 0 < len([r for held in records(orders, into).values() for r in held]) < 40_000
    replay(TopicTable(place_of(tmp_path) / folder_of(orders.name)), cluster, into)
    check_each_once(orders, into, 40_000)


def test_a_table_whose_files_change_while_it_is_read_is_looked_at_again(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    fill(orders, 20)
    table = archive_locally(orders.address, tmp_path, orders.name)
    file = Path(str(table.place), table.coverage[0].files[0].path)
    looks: list[int] = []

    def move(phase: str, done: int, total: int) -> None:
        """The file is away at the first look and back at the second, as after a compaction."""
        if phase == "looking":
            looks.append(done)
            file.rename(file.with_suffix(".away")) if len(looks) == 1 else file.with_suffix(".away").rename(file)

    into = f"{orders.name}-copy"
    replay(table, cluster, into, ReplaySettings(Excerpt(to_offset=5)), partitions=1)
    target = find_target(cluster, table, into)
    assert Replay(table, cluster, target, ReplaySettings(), progress=move).run().sent == 15
    assert len(looks) == 2
    check_each_once(orders, into, 20)


def test_topics_whose_offsets_are_made_of_time_are_replayed_and_replayed_into(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    source, into = f"{orders.name}-from", f"{orders.name}-into"
    for name in (source, into):
        orders.admin.create_topic(name, 1, {"headrace.format": "stream"})
    with Producer(orders.cluster) as producer:
        for n in range(50):
            producer.send(source, b"%d" % n, b"key %d" % n)
    table = archive_locally(orders.address, tmp_path, source)
    end = table.coverage[0].end
    assert replay(table, cluster, into, ReplaySettings(Excerpt(to_offset=end - 1))).sent == 49
    assert replay(table, cluster, into).sent == 1
    assert [r.value for r in records(orders, into)[0]] == [b"%d" % n for n in range(50)]


def test_a_compacted_target_takes_keys_alone_and_what_compaction_took_is_not_sent_again(
    orders: Topic, cluster: Cluster, tmp_path: Path
) -> None:
    into = f"{orders.name}-compacted"
    configs = {"headrace.format": "stream", "cleanup.policy": "compact"}
    orders.admin.create_topic(into, 1, configs)
    fill(orders, 100)
    table = archive_locally(orders.address, tmp_path, orders.name)
    # As if compaction had left the newest of each of the 50 keys.
    assert replay(table, cluster, into, ReplaySettings(Excerpt(from_offset=50))).sent == 50
    done = replay(table, cluster, into)
    assert (done.sent, done.already) == (0, 100)
    orders.send([b"no key"])
    with pytest.raises(ReplayRefused, match="offset 100 has no key"):
        replay(archive_locally(orders.address, tmp_path, orders.name), cluster, into)
