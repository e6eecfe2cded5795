"""Replay while what it writes to goes away: a broker that is killed and comes back gets each record once."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from headrace.client import Admin, Cluster, Producer, Reader
from headrace.lake.replay.replay import Replay, ReplaySettings
from headrace.lake.replay.target import find_target
from headrace.lake.table.table import TopicTable
from headrace.wire.errors import KafkaError
from headrace.wire.special_times import EARLIEST
from tests.cli.conftest import COMMAND
from tests.conftest import StartBroker
from tests.lake.local_archive import archive_locally

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

COUNT = 120_000
FILES = 4
"""Of each partition: a replay takes them one by one."""
KILLS = 4


def archived(address: str, lake: Path) -> TopicTable:
    """A topic of two partitions, in a table of several files."""
    with Cluster(address) as cluster:
        Admin(cluster).create_topic("orders", 2)
        for part in range(FILES):
            with Producer(cluster) as producer:
                for n in range(part * COUNT // FILES, (part + 1) * COUNT // FILES):
                    producer.send("orders", b"%d" % n, b"%d" % (n % 100), partition=n % 2)
            table = archive_locally(address, lake, "orders")
    return table


def check_each_once(address: str) -> None:
    with Cluster(address) as cluster:
        found: dict[int, list[int]] = {}
        for _, partition, record in Reader(cluster).read({("copy", p): EARLIEST for p in range(3)}):
            found.setdefault(partition, []).append(int(record.value or b""))
    assert sorted(n for values in found.values() for n in values) == list(range(COUNT))
    for values in found.values():
        for source in (0, 1):
            mine = [n for n in values if n % 2 == source]
            assert mine == sorted(mine)


def test_a_broker_that_is_killed_and_comes_back_gets_each_record_once(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(durability="always")
    table = archived(broker.address, tmp_path / "lake")
    kills = 0
    with Cluster(broker.address, timeout_s=120) as cluster:
        target = find_target(cluster, table, "copy", create=True, partitions=3)

        def kill(phase: str, done: int, total: int) -> None:
            """Requests are queued when this is called, and some of them are under way."""
            nonlocal kills
            if phase == "sending" and kills < KILLS:
                kills += 1
                broker.kill()
                broker.start()

        Replay(table, cluster, target, ReplaySettings(), progress=kill).run()
    assert kills == KILLS
    check_each_once(broker.address)


def test_a_replay_that_is_killed_at_any_moment_goes_on(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    archived(broker.address, tmp_path / "lake")
    with Cluster(broker.address) as cluster:
        Admin(cluster).create_topic("copy", 3)
    command = [
        *COMMAND, "lake", "replay", "--lake", str(tmp_path / "lake"), "--topic", "orders", "--into", "copy",
        "--bootstrap", broker.address,
    ]  # fmt: skip
    for n in range(2 * KILLS):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            try:
                running.wait(1.0 + 0.3 * n)
            except subprocess.TimeoutExpired:
                running.kill()
    subprocess.run(command, check=True, timeout=300)
    check_each_once(broker.address)


def test_two_replays_at_once_do_not_double_what_both_continue(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    table = archived(broker.address, tmp_path / "lake")
    with Cluster(broker.address) as cluster:
        target = find_target(cluster, table, "copy", create=True, partitions=3)

        class Stop(Exception):
            pass

        def stop(phase: str, done: int, total: int) -> None:
            if phase == "sending":
                raise Stop

        with pytest.raises(Stop):
            Replay(table, cluster, target, ReplaySettings(), progress=stop).run()

    def run() -> None:
        with Cluster(broker.address) as cluster:
            try:
                Replay(table, cluster, target, ReplaySettings()).run()
            except (OSError, KafkaError) as error:
                refused.append(error)

    refused: list[Exception] = []
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) <= 1
    check_each_once(broker.address)
