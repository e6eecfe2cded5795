"""Everything killed at once, the store included, and archives that are killed while others take over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

import pytest

from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.storage.place import place_of
from tests.cli.conftest import environment
from tests.conftest import StartBroker, StartRedis
from tests.lake.archive.test_archive_history import remember
from tests.lake.archiving import archive_once
from tests.lake.conftest import Topic
from tests.lake.steady_load import (
    COMMIT_EVERY_S,
    SteadyLoad,
    await_rows,
    check_acknowledged,
    check_exactly_once,
    running_archive,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[3]
TIERED = "remote.storage.enable"
CRASHES = 3
FAULTS_TIMEOUT_S = 1800
WITHOUT_IDEMPOTENCE = {"enable.idempotence": False}
"""A store that goes back loses the state of producers too, which end there if they are idempotent."""


def test_a_broker_with_a_lake_goes_on_behind_it_when_its_store_has_gone_back(
    spark: SparkSession, start_broker: StartBroker, start_redis: StartRedis, topic: str, tmp_path: Path
) -> None:
    """As after a power cut with `everysec`: the table has records that the store lost, and no offset is used twice."""
    lake, redis = tmp_path / "lake", start_redis("everysec")
    broker = start_broker(redis=redis.url, lake=lake)
    orders = Topic(broker, topic, 2)
    orders.admin.alter_configs(topic, {TIERED: "true"})
    following = ArchiveSettings(place_of(lake), commit_every_s=COMMIT_EVERY_S)
    with SteadyLoad(broker.address, topic, **WITHOUT_IDEMPOTENCE) as load:
        with running_archive(spark, broker.address, following):
            await_rows(lake, load)
            put_back = remember(redis, tmp_path / "copy")
            load.goes_on()
            await_rows(lake, load)
        broker.kill()
        put_back()
        broker.start()
        with running_archive(spark, broker.address, following):
            load.goes_on(1000)
            await_rows(lake, load)
    archive, _ = archive_once(spark, broker.address, lake, topic)
    assert archive.troubles == {}
    assert "the store lost records that the lake has" in broker.log
    check_acknowledged(lake, broker.address, load)


@contextmanager
def following_archive(address: str, lake: Path, *topics: str) -> Iterator[subprocess.Popen[bytes]]:
    """An archive in a process of its own."""
    command = [sys.executable, "-m", "tests.lake.following_archive", address, str(lake), *topics]
    with (lake.parent / "archive.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment(TMPDIR=str(lake.parent)))
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.faults
@pytest.mark.usefixtures("java")
@pytest.mark.timeout(FAULTS_TIMEOUT_S)
def test_everything_killed_at_once_again_and_again(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, tmp_path: Path
) -> None:
    lake, redis = tmp_path / "lake", start_redis("everysec")
    broker = start_broker(redis=redis.url, lake=lake)
    orders = Topic(broker, topic, 2)
    orders.admin.alter_configs(topic, {TIERED: "true"})
    with SteadyLoad(broker.address, topic, **WITHOUT_IDEMPOTENCE) as load:
        for _ in range(CRASHES):
            with following_archive(broker.address, lake) as archive:
                await_rows(lake, load)
                redis.send_signal(Signals.SIGKILL)
                broker.send_signal(Signals.SIGKILL)
                archive.kill()
            broker.wait()
            redis.end()
            redis.start()
            broker.start()
            load.goes_on(1000)
    with following_archive(broker.address, lake):
        await_rows(lake, load)
    check_acknowledged(lake, broker.address, load)


@pytest.mark.faults
@pytest.mark.usefixtures("java")
@pytest.mark.timeout(FAULTS_TIMEOUT_S)
def test_archives_that_are_killed_while_another_takes_over(orders: Topic, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with SteadyLoad(orders.address, orders.name) as load:
        for _ in range(CRASHES):
            with (
                following_archive(orders.address, lake, orders.name) as first,
                following_archive(orders.address, lake, orders.name),
            ):
                await_rows(lake, load)
                first.kill()
                load.goes_on()
                await_rows(lake, load)
    with following_archive(orders.address, lake, orders.name):
        await_rows(lake, load)
    check_exactly_once(lake, orders.address, load)
