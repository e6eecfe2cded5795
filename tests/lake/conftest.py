"""One Spark session for all tests of the lake that need Spark, and topics to read.

Those that use it run in one xdist worker (`--dist loadgroup`), so the session starts once. Without a Java that Spark
runs on they are taken out and test_java.py fails with one sentence, so that nobody takes a run without them for a
complete one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.client import Admin, Cluster, Producer
from headrace.lake.cold.log import LakeLog
from headrace.lake.session import NoJava, check_java
from headrace.wire.compression import Compression
from headrace.wire.records import Header
from tests.broker_process import BrokerProcess
from tests.lake.cold_topic import ColdTopic, OpenCold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


START_TIMEOUT_S = 600
"""Of a test that needs Spark: the first one waits for the session, and a call that is cut off breaks all others."""


def needs_spark(item: pytest.Item) -> bool:
    return not {"spark", "java"}.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives what needs Spark the time that it takes, and the shared session one worker."""
    if needs_spark(item):
        item.add_marker(pytest.mark.timeout(START_TIMEOUT_S))
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes out what needs Spark where it cannot run."""
    chosen = [item for item in items if needs_spark(item)]
    if not chosen:
        return
    try:
        check_java()
    except NoJava:
        items[:] = [item for item in items if item not in chosen]
        config.hook.pytest_deselected(items=chosen)


@pytest.fixture
def java() -> None:
    """For tests that start Spark in a process of their own."""
    check_java()


def quick_home(folder: Path) -> Path:
    """Spark's own folder without the zip of its Python files, which each Python process would compile anew.

    Spark gives the process that plans a stream 10 seconds to start: with the zip a busy machine misses that.
    """
    import pyspark

    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with Spark's own defaults, but for what makes it small and quick to start."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    home = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = str(quick_home(home / "home"))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
    del os.environ["SPARK_HOME"]
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Topic:
    """A topic of the shared broker, and what a test does with it from outside."""

    def __init__(self, broker: BrokerProcess, name: str, partitions: int) -> None:
        self.name = name
        self.address = broker.address
        self.cluster = Cluster(broker.address)
        self.admin = Admin(self.cluster)
        self.admin.create_topic(name, partitions)

    def send(
        self,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
        compression: Compression = "none",
    ) -> None:
        """Appends records to one partition."""
        with Producer(self.cluster, compression=compression) as producer:
            for value in values:
                producer.send(self.name, value, key, headers, partition, timestamp_ms)

    @property
    def options(self) -> dict[str, str]:
        """What every query of it needs."""
        return {"kafka.bootstrap.servers": self.address, "subscribe": self.name}


@pytest.fixture
def made(broker: BrokerProcess, topic: str, tmp_path: Path) -> Iterator[ColdTopic]:
    """A topic that takes any timestamp, and its table."""
    found = ColdTopic(broker.address, tmp_path / "lake", topic, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    yield found
    found.cluster.close()


@pytest.fixture
async def open_cold() -> AsyncIterator[OpenCold]:
    """Readers of cold records that end with the test."""
    readers: list[LakeLog] = []

    def start(topic: ColdTopic) -> LakeLog:
        readers.append(topic.reader())
        return readers[-1]

    yield start
    for reader in readers:
        await reader.close()


@pytest.fixture
def orders(broker: BrokerProcess, topic: str) -> Iterator[Topic]:
    """A topic of two partitions that nobody else uses."""
    made = Topic(broker, topic, 2)
    yield made
    made.cluster.close()
