"""A Kafka server written by others: librdkafka's mock cluster, which runs inside a confluent-kafka client."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from headrace.client import Cluster


@pytest.fixture(scope="session")
def librdkafka_cluster() -> Iterator[str]:
    """The address of a cluster of three brokers, which creates each topic that it is asked for."""
    owner = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    yield ",".join(f"{b.host}:{b.port}" for b in owner.list_topics(timeout=10).brokers.values())
    owner.flush()


@pytest.fixture
def cluster(librdkafka_cluster: str) -> Iterator[Cluster]:
    with Cluster(librdkafka_cluster, timeout_s=10) as found:
        yield found
