"""Brokers and stores that end in the middle of an idempotent producer's run, gently or not."""

from __future__ import annotations

import os
from signal import Signals

import pytest

from tests.broker.peers import connect, create_topic, fetch_request
from tests.broker_process import BrokerProcess, RedisProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.steady_producer import SteadyProducer

GENTLY_OR_NOT = [Signals.SIGTERM, Signals.SIGKILL]
KILLED_OFTEN = [pytest.param(Signals.SIGTERM, marks=pytest.mark.faults), Signals.SIGKILL]
"""Kills in every run, ends in good order in `make faults`."""


def topic_with_partitions(broker: BrokerProcess, topic: str, partitions: int = 3) -> None:
    with connect(broker) as connection:
        create_topic(connection, topic, partitions)


def end_broker(broker: BrokerProcess, number: Signals) -> None:
    if number == Signals.SIGTERM:
        assert broker.stop() == 0
    else:
        broker.kill()


@pytest.mark.parametrize("number", GENTLY_OR_NOT)
def test_nothing_is_lost_or_doubled_when_the_broker_restarts(
    start_broker: StartBroker, topic: str, number: Signals
) -> None:
    restart_broker_under_load(start_broker(), topic, number, times=2)


@pytest.mark.faults
@pytest.mark.parametrize("number", GENTLY_OR_NOT)
@pytest.mark.parametrize("durability", ["always", "everysec", "memory"])
def test_nothing_is_lost_or_doubled_over_many_restarts_of_the_broker(
    start_broker: StartBroker, topic: str, number: Signals, durability: str
) -> None:
    if durability == "memory" and number == Signals.SIGTERM:
        pytest.skip("the embedded server ends with the broker, and keeps nothing")
    restart_broker_under_load(start_broker(durability=durability), topic, number, times=10)


def restart_broker_under_load(broker: BrokerProcess, topic: str, number: Signals, times: int) -> None:
    topic_with_partitions(broker, topic)
    with SteadyProducer(broker.address, topic) as producer:
        for _ in range(times):
            end_broker(broker, number)
            broker.start()
            producer.goes_on()
    producer.check(broker.address)


@pytest.mark.parametrize("number", KILLED_OFTEN)
def test_nothing_is_lost_or_doubled_when_the_embedded_server_ends(
    start_broker: StartBroker, topic: str, number: Signals
) -> None:
    broker = start_broker(durability="always")
    end_embedded_server_under_load(broker, topic, number, times=1)


@pytest.mark.faults
@pytest.mark.parametrize("number", GENTLY_OR_NOT)
def test_nothing_is_lost_or_doubled_over_many_ends_of_the_embedded_server(
    start_broker: StartBroker, topic: str, number: Signals
) -> None:
    broker = start_broker(durability="always")
    end_embedded_server_under_load(broker, topic, number, times=8)


def end_embedded_server_under_load(broker: BrokerProcess, topic: str, number: Signals, times: int) -> None:
    topic_with_partitions(broker, topic)
    with SteadyProducer(broker.address, topic) as producer:
        for _ in range(times):
            end_embedded_server(broker, number)
            producer.goes_on()
    producer.check(broker.address)


def end_embedded_server(broker: BrokerProcess, number: Signals) -> None:
    """Ends it and waits for the next one."""
    before = broker.valkey_pid
    os.kill(before, number)
    wait_until(lambda: broker.valkey_pid != before, "no other server came")


@pytest.mark.parametrize("number", KILLED_OFTEN)
def test_nothing_is_lost_or_doubled_when_your_own_server_restarts(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, number: Signals
) -> None:
    redis = start_redis("always")
    restart_redis_under_load(redis, start_broker(redis=redis.url), topic, number, times=1)


@pytest.mark.faults
@pytest.mark.parametrize("number", GENTLY_OR_NOT)
def test_nothing_is_lost_or_doubled_over_many_restarts_of_your_own_server(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, number: Signals
) -> None:
    redis = start_redis("always")
    restart_redis_under_load(redis, start_broker(redis=redis.url), topic, number, times=10)


def restart_redis_under_load(
    redis: RedisProcess, broker: BrokerProcess, topic: str, number: Signals, times: int
) -> None:
    topic_with_partitions(broker, topic)
    with SteadyProducer(broker.address, topic) as producer:
        for _ in range(times):
            redis.stop(number)
            redis.start()
            producer.goes_on()
    producer.check(broker.address)


def test_a_broker_that_ends_under_load_exits_clean_and_keeps_what_it_acknowledged(
    start_broker: StartBroker, topic: str
) -> None:
    """Without waiting for producers that would go on for ever, nor for long polls."""
    broker = start_broker(shutdown_grace_ms=600_000)
    topic_with_partitions(broker, topic)
    waiting = connect(broker)
    waiting.ask(fetch_request(topic, {0: 0}, max_wait_ms=600_000, min_bytes=1 << 30), 12)
    with SteadyProducer(broker.address, topic, value_bytes=5_000) as producer:
        assert broker.stop() == 0
        assert '"level": "error"' not in broker.log
        waiting.close()
        broker.start()
        producer.goes_on()
    producer.check(broker.address)
