"""Apache Kafka, one node in KRaft mode, from Maven Central: its own default settings and its own scripts' Java options.

The values below are those of the server.properties and of kafka-run-class.sh that Kafka is delivered with.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from pathlib import Path
from typing import IO

from interop.clients import CACHE, KAFKA_JARS, KAFKA_TOOLS
from interop.runner import Broken, Missing, prepare
from tests.broker_process import free_port

START_TIMEOUT_S = 120.0
_JVM = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
_SERVER_HEAP = ("-Xmx1G", "-Xms1G")
_TOOL_HEAP = ("-Xmx512M",)
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}/logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def why_not() -> str:
    """Fetches Kafka if need be; why it cannot be run, or an empty text."""
    CACHE.mkdir(exist_ok=True)
    try:
        prepare(KAFKA_TOOLS, CACHE / "kafka-tools.log")
    except (Missing, Broken) as why:
        return f"missing: {why}"
    return ""


def version() -> str:
    """Of Kafka and of its tools; empty if they were not fetched."""
    return "".join(jar.stem.removeprefix("kafka-clients-") for jar in KAFKA_JARS.glob("kafka-clients-[0-9]*.jar"))


def tool_command(class_name: str, *arguments: str) -> list[str]:
    """One of Kafka's own programs, as its scripts start it."""
    return ["java", *_TOOL_HEAP, *_JVM, "-cp", f"{KAFKA_JARS}/*", class_name, *arguments]


class KafkaNode:
    """A node with a folder of its own; `start` returns once it answers."""

    def __init__(self, folder: Path, more_properties: str = "") -> None:
        """`more_properties` go before Kafka's own, and may name `{port}` and `{controller}`, its ports."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.logs = folder / "logs"
        self._properties = folder / "server.properties"
        self.port = free_port()
        properties = _PROPERTIES + more_properties
        self._properties.write_text(properties.format(port=self.port, controller=free_port(), folder=folder))
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        if not self.logs.exists():
            self._format()

    def _format(self) -> None:
        storage = tool_command(
            "kafka.tools.StorageTool", "format", "--config", str(self._properties),
            "--cluster-id", "bench-bench-bench-ben0", "--standalone",
        )  # fmt: skip
        done = subprocess.run(storage, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Kafka's folder cannot be created: {done.stdout}{done.stderr}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it and returns once it answers."""
        self._log = (self._folder / "server.log").open("ab")
        line = ["java", *_SERVER_HEAP, *_JVM, "-cp", f"{KAFKA_JARS}/*", "kafka.Kafka", str(self._properties)]
        began = time.perf_counter()
        self._process = subprocess.Popen(line, stdout=self._log, stderr=self._log)
        while not self._answers():
            if self._process.poll() is not None or time.perf_counter() - began > START_TIMEOUT_S:
                raise RuntimeError(f"Kafka did not start: {(self._folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        """Whether it answers an ApiVersions request, which it does once it serves."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as line:
            line.settimeout(5)
            line.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
            return len(line.recv(4)) == 4
        return False

    def stop(self) -> None:
        """Ends it and waits until it is gone."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._log is not None:
            self._log.close()
