"""A broker with a group that is behind, and programs that look at it: for tools that show lag."""

from __future__ import annotations

import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker_process import BrokerProcess, free_port, wait_until

from headrace.client import Admin, Cluster, Groups, Producer

GROUP, TOPIC, STREAM = "billing", "orders", "clicks"
RECORDS, READ, PARTITIONS = 3_000, 1_000, 3
LAG = RECORDS - READ
_WAIT_S = 90.0


@contextmanager
def lagging_broker(folder: Path, **options: object) -> Iterator[tuple[BrokerProcess, str]]:
    """The broker, once its own metrics know the lag, and where they are."""
    port = free_port()
    shown = {"http_port": port, "metrics_interval_ms": 500, "metrics_partitions": True}
    broker = BrokerProcess(folder / "data", **shown, **options)
    page = f"http://127.0.0.1:{port}/metrics"
    try:
        broker.start()
        _fill(broker.address)
        wait_until(lambda: f'topic="{TOPIC}"}} {LAG}' in get(page), "the node does not know the lag", _WAIT_S)
        yield broker, page
    finally:
        broker.end()


def _fill(address: str) -> None:
    with Cluster(address) as cluster:
        admin = Admin(cluster)
        admin.create_topic(TOPIC, PARTITIONS)
        admin.create_topic(STREAM, 1, {"headrace.format": "stream"})
        with Producer(cluster) as producer:
            for number in range(RECORDS):
                producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                producer.send(STREAM, b"%d" % number)
        Groups(cluster).set_offsets(GROUP, {(TOPIC, index): READ // PARTITIONS for index in range(PARTITIONS - 1)})
        left = READ - READ // PARTITIONS * (PARTITIONS - 1)
        Groups(cluster).set_offsets(GROUP, {(TOPIC, PARTITIONS - 1): left})


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@contextmanager
def running(*command: str, cwd: Path | None = None) -> Iterator[Callable[[], str]]:
    """A program for as long as it is looked at; what it has said so far."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=cwd)

        def said() -> str:
            output.seek(0)
            return output.read()[-2_000:]

        try:
            yield said
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(holds: Callable[[], bool], said: Callable[[], str]) -> None:
    def quietly() -> bool:
        try:
            return holds()
        except (OSError, ValueError, KeyError):
            return False

    try:
        wait_until(quietly, "it does not come to that", _WAIT_S)
    except AssertionError:
        raise AssertionError(f"nothing like it within {_WAIT_S:g} s: {said()}") from None
