"""`format("headrace")` and the archive, against a node of Apache Kafka that is started here."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.kafka import KafkaNode, version
from tests.broker_process import free_port

from interop.lake_kafka.checks import LakeOnKafka
from interop.lake_kafka.sasl import make_user, properties
from interop.lake_kafka.transactions import TransactionsOnKafka
from interop.report import Checks
from interop.spark.session import session


def main() -> None:
    checks = Checks(version())
    with tempfile.TemporaryDirectory(prefix="headrace-interop-kafka-") as name:
        folder, asking_port = Path(name), free_port()
        node = KafkaNode(folder / "kafka", properties(asking_port) + "log.cleaner.backoff.ms=200\n")
        node.start()
        try:
            address = f"127.0.0.1:{node.port}"
            make_user(address)
            with session(folder, with_packages=False) as spark:
                lake = LakeOnKafka(spark, address, f"127.0.0.1:{asking_port}", folder)
                for title, check in (lake.checks | TransactionsOnKafka(spark, address, folder / "txn").checks).items():
                    checks.check(title, check)
        finally:
            node.stop()
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
