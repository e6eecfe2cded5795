"""A store that goes back behind the table: nothing is mixed up in silence, and what was lost is written down."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

import msgspec
import pytest
from redis import Redis

from headrace.lake.archive.task import ArchiveTask, LastRecord, archive_range, of_one_history
from headrace.lake.archive.verify import verify_lake
from headrace.lake.connecting import Connecting
from headrace.lake.fetching import OffsetRange
from headrace.lake.storage.place import place_of
from headrace.lake.table.table import TopicTable
from tests.broker_process import RedisProcess
from tests.conftest import StartBroker, StartRedis
from tests.lake.archiving import archive_once, records_of, table_of
from tests.lake.conftest import Topic
from tests.lake.other_reader import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def remember(redis: RedisProcess, copy: Path) -> Callable[[], None]:
    """Keeps what the store has now; the function that is returned kills the store and puts it back to that.

    Without what tells a broker that the log may have lost its end: with it no offset would be used again.
    """
    shutil.copytree(redis.directory, copy)

    def put_back() -> None:
        redis.stop(Signals.SIGKILL)
        shutil.rmtree(redis.directory)
        shutil.copytree(copy, redis.directory)
        redis.start()
        with Redis(port=redis.port) as client:
            for meta in client.scan_iter("*:meta"):
                client.hdel(meta, "server")

    return put_back


def values(name: str, count: int) -> list[bytes | None]:
    return [b"%s-%d" % (name.encode(), n) for n in range(count)]


def test_offsets_that_are_used_again_stop_that_partition_until_its_table_is_moved_away(
    spark: SparkSession, start_broker: StartBroker, start_redis: StartRedis, topic: str, tmp_path: Path
) -> None:
    lake, redis = tmp_path / "lake", start_redis("always")
    broker = start_broker(redis=redis.url)
    orders = Topic(broker, topic, 2)
    for partition in (0, 1):
        orders.send(values("kept", 100), partition=partition)
    put_back = remember(redis, tmp_path / "copy")
    orders.send(values("lost", 100))
    archive_once(spark, broker.address, lake, topic)
    archived = rows_of(table_of(lake, topic))

    broker.kill()
    put_back()
    broker.start()
    archive, said = archive_once(spark, broker.address, lake, topic)
    assert list(archive.troubles) == [(topic, 0)]
    assert "it ends at 100, before the end of its table at 200" in said[0]

    orders.send(values("other", 150))
    orders.send(values("more", 50), partition=1)
    archive, said = archive_once(spark, broker.address, lake, topic)
    assert list(archive.troubles) == [(topic, 0)]
    assert "offset 199 has a different record than its table" in said[0]
    assert [row for row in rows_of(table_of(lake, topic)) if row[0] == 0] == [row for row in archived if row[0] == 0]
    assert len([row for row in rows_of(table_of(lake, topic)) if row[0] == 1]) == 150
    (finding,) = verify_lake(place_of(lake), orders.cluster).findings
    assert (finding.partition, finding.offset) == (0, 100)

    # The remedy.
    (tmp_path / "kept").mkdir()
    table_of(lake, topic).rename(table_of(tmp_path / "kept", topic))
    archive_once(spark, broker.address, lake, topic)
    assert rows_of(table_of(lake, topic)) == records_of(broker.address, topic)
    assert verify_lake(place_of(lake), orders.cluster).findings == []
    assert verify_lake(place_of(tmp_path / "kept"), None).findings == []


@pytest.mark.parametrize("is_followed", [True, False])
def test_what_the_store_lost_and_the_broker_knows_of_is_a_recorded_gap(
    is_followed: bool,
    spark: SparkSession,
    start_broker: StartBroker,
    start_redis: StartRedis,
    topic: str,
    tmp_path: Path,
) -> None:
    """Whether records follow it already or not."""
    lake, redis = tmp_path / "lake", start_redis("always")
    broker = start_broker(redis=redis.url, tail_cache_bytes=0)
    orders = Topic(broker, topic, 2)
    orders.send(values("kept", 100))
    put_back = remember(redis, tmp_path / "copy")
    orders.send(values("archived", 50))
    archive_once(spark, broker.address, lake, topic)
    orders.send(values("lost", 50))
    expected = rows_of(table_of(lake, topic))
    assert len(expected) == 150

    put_back()
    if is_followed:
        orders.send(values("new", 10))
        expected += [(0, 200 + n, value) for n, value in enumerate(values("new", 10))]
    _, said = archive_once(spark, broker.address, lake, topic)
    assert said == [f"{topic}-0: offsets 150 to 199, lost by the broker's store, are recorded as a gap"]
    table = table_of(lake, topic)
    assert rows_of(table) == expected
    assert TopicTable(place_of(table)).coverage[0].gaps == [(150, 200)]
    # The table also has what was archived in time: that the topic lost it is no fault of the table's.
    proof = verify_lake(place_of(lake), orders.cluster)
    assert (proof.rows, proof.findings) == (len(expected), [])


def test_pieces_of_a_range_are_of_one_history_or_not_committed(orders: Topic, tmp_path: Path) -> None:
    """A store that goes back while the pieces are fetched, one after the other, exchanges what lies between them."""
    orders.send(values("some", 30))
    topic_id, place = orders.admin.describe_topic(orders.name).topic_id, place_of(tmp_path)
    pieces = [
        archive_range(
            Connecting(orders.address),
            ArchiveTask(OffsetRange(orders.name, 0, start, start + 10), topic_id, place, 1 << 20),
        )
        for start in (0, 10, 20)
    ]
    assert of_one_history(orders.cluster, pieces) == pieces
    exchanged = msgspec.structs.replace(pieces[1], tail=LastRecord(19, pieces[0].tail.digest if pieces[0].tail else ""))
    assert of_one_history(orders.cluster, [pieces[0], exchanged, pieces[2]]) == pieces[:1]
    # Of the last piece nothing follows: the next round looks at its end.
    assert of_one_history(orders.cluster, [pieces[0], exchanged]) == [pieces[0], exchanged]


def test_a_last_file_that_cannot_be_read_stops_its_partition_alone(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    table = table_of(tmp_path, orders.name)
    for partition in (0, 1):
        orders.send(values("old", 10), partition=partition)
    archive_once(spark, orders.address, tmp_path, orders.name)
    for partition in (0, 1):
        orders.send(values("new", 10), partition=partition)
    (file,) = table.glob("p0/*.parquet")
    content = file.read_bytes()
    file.write_bytes(bytes(len(content)))
    archive, said = archive_once(spark, orders.address, tmp_path, orders.name)
    assert list(archive.troubles) == [(orders.name, 0)]
    assert "the last file of its table cannot be read" in said[0]
    file.write_bytes(content)
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table) == records_of(orders.address, orders.name)
