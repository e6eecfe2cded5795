"""Brokers killed together with the store: the leader epochs that clients are shown afterwards are those that hold.

A client that was shown an epoch from before would be fenced, and confluent-kafka's AdminClient, which keeps what it was
shown, would be fenced for minutes.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from signal import Signals
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.peers import batch_of, connect, create_topic, metadata, produce
from tests.broker_process import BrokerProcess, RedisProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.test_two_brokers import LEASE_MS, leaders_of, nodes_of

PARTITIONS = 8
TIMEOUT_S = 20
FORMATS = ["log", "stream"]
ONE_OFTEN = ["log", pytest.param("stream", marks=pytest.mark.faults)]
"""One format in every run, the other one in `make faults`."""
admin: Any = import_module("confluent_kafka.admin")
"""Its names are there but not declared, so the type checker cannot follow an import."""


def fill(broker: BrokerProcess, topic: str, format: str) -> None:
    """A topic with a record in each partition that the broker leads."""
    node = broker.settings.get("node_id", 0)
    with connect(broker) as connection:
        create_topic(connection, topic, PARTITIONS, {"headrace.format": format})
        for number, leader in leaders_of(broker, topic).items():
            if leader == node:
                assert produce(connection, topic, {number: batch_of(b"x")})[number].error_code == 0


def epochs_of(broker: BrokerProcess, topic: str) -> set[int]:
    with connect(broker) as connection:
        (found,) = metadata(connection, topic).topics
        return {partition.leader_epoch for partition in found.partitions}


def check_new_clients(broker: BrokerProcess, topic: str) -> None:
    """Clients that have just come, with one try each: what a request is told is told to whoever called."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    administrator = admin.AdminClient({"bootstrap.servers": broker.address})
    futures = administrator.list_offsets({place: admin.OffsetSpec.latest() for place in places})
    assert all(future.result(TIMEOUT_S).offset >= 0 for future in futures.values())
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "unused"})
    asked = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    assert [place.error for place in consumer.offsets_for_times(asked, TIMEOUT_S)] == [None] * PARTITIONS
    consumer.close()


@pytest.mark.parametrize("format", ONE_OFTEN)
def test_new_clients_are_served_at_once_after_broker_and_store_were_killed(
    start_broker: StartBroker, topic: str, format: str
) -> None:
    broker = start_broker()
    fill(broker, topic, format)
    for deaths in (1, 2):
        broker.kill()
        os.kill(broker.valkey_pid, Signals.SIGKILL)
        broker.start()
        check_new_clients(broker, topic)
        assert epochs_of(broker, topic) == {deaths}
    broker.kill()  # alone: nothing can have been lost
    broker.start()
    check_new_clients(broker, topic)
    assert epochs_of(broker, topic) == {2}


@pytest.fixture
def store(start_redis: StartRedis) -> RedisProcess:
    return start_redis("always")


@pytest.fixture
def brokers(start_broker: StartBroker, store: RedisProcess) -> list[BrokerProcess]:
    brokers = [start_broker(redis=store.url, node_id=node_id, node_lease_ms=LEASE_MS) for node_id in (1, 2)]
    wait_until(lambda: all(nodes_of(broker) == {1, 2} for broker in brokers), "the brokers do not know each other")
    return brokers


@pytest.mark.parametrize("format", ONE_OFTEN)
def test_of_two_brokers_that_start_together_each_shows_what_the_other_raised(
    store: RedisProcess, brokers: list[BrokerProcess], topic: str, format: str
) -> None:
    fill(brokers[0], topic, format)
    for broker in brokers:
        broker.kill()
    store.stop(Signals.SIGKILL)
    store.start()
    with ThreadPoolExecutor() as pool:
        list(pool.map(BrokerProcess.start, brokers))
    for broker in brokers:
        check_new_clients(broker, topic)
        assert epochs_of(broker, topic) == {1}


@pytest.mark.parametrize("format", FORMATS)
def test_a_broker_that_takes_over_from_one_that_died_with_the_store_shows_raised_epochs(
    store: RedisProcess, brokers: list[BrokerProcess], topic: str, format: str
) -> None:
    survivor, other = brokers
    fill(other, topic, format)
    other.kill()
    store.stop(Signals.SIGKILL)
    store.start()
    wait_until(lambda: set(leaders_of(survivor, topic).values()) == {1}, "the partitions do not move")
    check_new_clients(survivor, topic)
