"""A distributed worker of Kafka Connect reads a file into a topic, exactly once, however often it is killed.

Its configs, offsets and status are in compacted topics of the broker, whose address is the first argument.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.broker_process import free_port

from interop.clients import JVM
from interop.report import Checks, expect

ADDRESS = sys.argv[1]
KILLS = 3
LINES_AT_ONCE = 2_000
PATIENCE_S = 120.0
TOPIC = "lines"
_WORKER = """
bootstrap.servers={address}
group.id=workers
listeners=http://127.0.0.1:{port}
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=3
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
exactly.once.source.support=enabled
offset.flush.interval.ms=200
session.timeout.ms=6000
heartbeat.interval.ms=500
plugin.discovery=only_scan
"""


class Worker:
    """The worker as a process that may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        properties = self._folder / "worker.properties"
        properties.write_text(_WORKER.format(address=ADDRESS, port=self.port))
        line = (*JVM, "-cp", "jars/*", "org.apache.kafka.connect.cli.ConnectDistributed", str(properties))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(line, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """What its REST interface answers; asked again until it does."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Content-Type": "application/json"},
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except (urllib.error.URLError, OSError) as why:
                if time.monotonic() > deadline:
                    log = (self._folder / "log").read_text()[-3000:]
                    raise AssertionError(f"{method} {path}: {why}\n{log}") from why
                time.sleep(0.3)


class Lines:
    """What a reader of committed records finds in the topic."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._consumer = Consumer(
            {"bootstrap.servers": ADDRESS, "group.id": "lines", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read_until(self, count: int, deadline: float) -> None:
        while len(self.found) < count and time.monotonic() < deadline:
            self.read(0.2)

    def read(self, seconds: float) -> None:
        for message in self._consumer.consume(1_000, seconds):
            if message.error() is None and (value := message.value()) is not None:
                self.found.append(value.decode())


def copy_a_file() -> None:
    administrator = AdminClient({"bootstrap.servers": ADDRESS})
    administrator.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    lines, written = Lines(), 0
    with tempfile.TemporaryDirectory(prefix="headrace-interop-connect-") as name:
        source, worker = Path(name) / "source.txt", Worker(Path(name))
        source.touch()
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(source),
            "topic": TOPIC,
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
            "batch.size": "50",
        }
        try:
            worker.start()
            worker.ask("PUT", "/connectors/file/config", config)
            for attempt in range(KILLS + 1):
                with source.open("a") as file:
                    file.writelines(f"line {number}\n" for number in range(written, written + LINES_AT_ONCE))
                written += LINES_AT_ONCE
                deadline = time.monotonic() + PATIENCE_S
                lines.read_until(len(lines.found) + 1, deadline)
                if attempt < KILLS:
                    worker.kill()
                    worker.start()
            with source.open("a") as file:  # the connector keeps the last lines to itself until there are more
                file.writelines("more\n" for _ in range(LINES_AT_ONCE))
            lines.read_until(written + 1, deadline)
        finally:
            worker.kill()
    numbers = [int(line.split()[1]) for line in lines.found if line != "more"]
    expect("lines that are missing", sorted(set(range(written)) - set(numbers)), [])
    expect("lines in their order, each once", numbers == list(range(written)), True)


def main() -> None:
    (jar,) = Path("jars").glob("connect-runtime-*.jar")
    checks = Checks(jar.stem.removeprefix("connect-runtime-"))
    checks.check(f"an exactly-once source: every line once over {KILLS} kills of its worker", copy_a_file)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
