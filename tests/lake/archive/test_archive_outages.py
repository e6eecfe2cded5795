"""Exactly once while brokers and stores restart, partitions come, records go and topics are made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

import pytest

from headrace.lake.archive.round import ArchiveSettings, Step
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.table import TopicTable
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.lake.archiving import archive_once, records_of, table_of
from tests.lake.conftest import Topic
from tests.lake.other_reader import count_rows, rows_of
from tests.lake.steady_load import (
    COMMIT_EVERY_S,
    TIMEOUT_S,
    SteadyLoad,
    await_rows,
    check_exactly_once,
    running_archive,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

STEPS: tuple[Step, ...] = ("before-write", "after-write", "before-commit", "after-commit")
ONCE_OR_OFTEN = [1, pytest.param(8, marks=pytest.mark.faults)]


def following(lake: Path, topic: str) -> ArchiveSettings:
    return ArchiveSettings(place_of(lake), [topic], commit_every_s=COMMIT_EVERY_S)


def disturb(spark: SparkSession, broker: BrokerProcess, topic: str, lake: Path, trouble: Callable[[], None]) -> None:
    """Archives a topic under load through some trouble; in the end the table is what was acknowledged."""
    with SteadyLoad(broker.address, topic) as load:
        with running_archive(spark, broker.address, following(lake, topic)):
            await_rows(lake, load)
            trouble()
            load.goes_on()
            await_rows(lake, load)
    archive_once(spark, broker.address, lake, topic)
    check_exactly_once(lake, broker.address, load)


@pytest.mark.parametrize("times", ONCE_OR_OFTEN)
def test_brokers_that_are_killed_while_the_archive_runs(
    times: int, spark: SparkSession, start_broker: StartBroker, topic: str, tmp_path: Path
) -> None:
    broker = start_broker()
    Topic(broker, topic, 2).cluster.close()

    def restart() -> None:
        for _ in range(times):
            broker.kill()
            broker.start()

    disturb(spark, broker, topic, tmp_path / "lake", restart)


@pytest.mark.parametrize("times", ONCE_OR_OFTEN)
def test_a_store_that_is_killed_while_the_archive_runs_and_keeps_what_it_acknowledged(
    times: int, spark: SparkSession, start_broker: StartBroker, start_redis: StartRedis, topic: str, tmp_path: Path
) -> None:
    redis = start_redis("always")
    broker = start_broker(redis=redis.url)
    Topic(broker, topic, 2).cluster.close()

    def restart() -> None:
        for _ in range(times):
            redis.stop(Signals.SIGKILL)
            redis.start()

    disturb(spark, broker, topic, tmp_path / "lake", restart)


def test_partitions_that_are_added_while_the_archive_runs(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    table = table_of(tmp_path, orders.name)
    orders.send([b"old"])
    with running_archive(spark, orders.address, following(tmp_path, orders.name)):
        orders.admin.create_partitions(orders.name, 4)
        orders.send([b"new"] * 5, partition=3)
        wait_until(lambda: count_rows(table) == 6, "the new one is not archived", TIMEOUT_S)
    assert rows_of(table) == records_of(orders.address, orders.name)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


def test_records_that_are_deleted_while_they_are_to_be_archived_stop_that_partition_alone(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    """They were there when the round was planned and are gone when its task fetches them."""
    for partition in (0, 1):
        orders.send([b"%d" % n for n in range(10)], partition=partition)
    deleted: list[str] = []

    def delete(step: Step) -> None:
        if step == "before-write" and not deleted:
            deleted.append(step)
            orders.admin.delete_records({(orders.name, 0): 4})

    archive, said = archive_once(spark, orders.address, tmp_path, orders.name, at_step=delete)
    assert list(archive.troubles) == [(orders.name, 0)]
    assert said[-1].endswith("--accept-gap records that gap and continues at 4")
    table = table_of(tmp_path, orders.name)
    assert rows_of(table) == [(1, n, b"%d" % n) for n in range(10)]
    archive_once(spark, orders.address, tmp_path, orders.name, accept_gap=True)
    assert TopicTable(place_of(table)).coverage[0].gaps == [(0, 4)]
    assert rows_of(table) == records_of(orders.address, orders.name)
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


@pytest.mark.parametrize(
    "at", [pytest.param(step, marks=[] if step == "before-commit" else pytest.mark.faults) for step in STEPS]
)
def test_a_topic_that_is_made_again_in_the_middle_of_a_round_gets_a_table_of_its_own(
    at: Step, spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    old_id = orders.admin.describe_topic(orders.name).topic_id.hex()
    orders.send([b"old-%d" % n for n in range(10)])
    made_again: list[str] = []

    def make_again(step: Step) -> None:
        if step == at and not made_again:
            made_again.append(step)
            orders.admin.delete_topic(orders.name)
            orders.admin.create_topic(orders.name, 2)
            orders.send([b"new-%d" % n for n in range(20)])

    archive_once(spark, orders.address, tmp_path, orders.name, at_step=make_again)
    archive_once(spark, orders.address, tmp_path, orders.name)
    table = table_of(tmp_path, orders.name)
    assert rows_of(table) == [(0, n, b"new-%d" % n) for n in range(20)]
    # What was fetched before the topic went is in the table that was its own.
    kept = rows_of(table.with_name(f"{table.name}_.{old_id}"))
    assert kept == ([] if at == "before-write" else [(0, n, b"old-%d" % n) for n in range(10)])
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []
