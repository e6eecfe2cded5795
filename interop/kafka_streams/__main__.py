"""Kafka Streams counts words with exactly_once_v2, is killed and started again, and must not count one twice.

Every count is written to a topic, so a reader of committed records finds 1, 2, 3, ... of each word: a word that was
counted twice, or not at all, shows at once. The broker's address is the first argument.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from interop.clients import JVM
from interop.report import Checks, expect

ADDRESS = sys.argv[1]
KILLS = 10
PARTITIONS = 3
LINES_AT_ONCE = 200
PATIENCE_S = 120.0
_WAIT_S = 30.0
_VOCABULARY = [f"word{number}" for number in range(50)]


class Counting:
    """The program as a process that may be killed."""

    def __init__(self, words: str, counts: str, folder: Path) -> None:
        line = (*JVM, "-cp", "classes:jars/*", "WordCount", ADDRESS, words, counts, str(folder / "state"))
        self._line = line
        self._log = (folder / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._line, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Counts:
    """What a reader of committed records has found of each word, in the order of the log."""

    def __init__(self, topic: str) -> None:
        self.of: dict[str, list[int]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": ADDRESS,
                "group.id": "counts",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def read(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self.of.setdefault(key.decode(), []).append(int.from_bytes(value, "big"))

    @property
    def total(self) -> int:
        return sum(len(found) for found in self.of.values())


def count_words() -> None:
    administrator = AdminClient({"bootstrap.servers": ADDRESS})
    words, counts = "words", "counts"
    for topic in (words, counts):
        administrator.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_WAIT_S)
    producer, chance, expected = Producer({"bootstrap.servers": ADDRESS}), random.Random(17), Counter[str]()
    found = Counts(counts)
    with tempfile.TemporaryDirectory(prefix="headrace-interop-streams-") as name:
        counting = Counting(words, counts, Path(name))
        try:
            for _ in range(KILLS + 1):
                counting.kill()
                before = found.total
                for _ in range(LINES_AT_ONCE):
                    line = [chance.choice(_VOCABULARY) for _ in range(4)]
                    expected.update(line)
                    producer.produce(words, " ".join(line))
                producer.flush(_WAIT_S)
                counting.start()
                # It is killed while it counts: some of what is new shows, not all of it.
                deadline = time.monotonic() + PATIENCE_S
                while found.total == before and time.monotonic() < deadline:
                    found.read(0.1)
                found.read(chance.random())
            while found.total < expected.total() and time.monotonic() < deadline:
                found.read(0.5)
            found.read(2.0)
        finally:
            counting.kill()
    wrong = {word: counts for word, counts in found.of.items() if counts != list(range(1, expected[word] + 1))}
    expect("words that were counted wrongly", {word: counts[-5:] for word, counts in wrong.items()}, {})
    expect("the words", sorted(found.of), sorted(expected))


def main() -> None:
    (jar,) = Path("jars").glob("kafka-streams-*.jar")
    checks = Checks(jar.stem.removeprefix("kafka-streams-"))
    checks.check(f"exactly_once_v2: words are counted once over {KILLS} kills", count_words)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
