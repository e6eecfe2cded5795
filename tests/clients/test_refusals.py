"""What cannot be done is said in the client's own words, at once, and not tried for ever."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess
from tests.clients.adapters import CLIENTS
from tests.clients.client import Client, DeliveryFailed, Sent
from tests.conftest import StartBroker

MESSAGE_TOO_LARGE = 10
AT_ONCE_S = 15.0
"""Far below the minute and more after which these clients stop trying."""


def test_a_record_over_the_topics_limit_is_refused_and_smaller_ones_go_on(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.create_topic(broker.address, topic, 1, {"max.message.bytes": "10000"})
    with pytest.raises(DeliveryFailed) as refusal:
        client.produce(broker.address, topic, [Sent(0, None, bytes(20_000))], {})
    assert refusal.value.code == MESSAGE_TOO_LARGE
    assert client.produce(broker.address, topic, [Sent(0, None, bytes(9_000))], {}) == [0]


def test_the_newer_group_protocol_is_refused_at_once(broker: BrokerProcess, topic: str, group: str) -> None:
    """librdkafka has it; without an answer to its heartbeats it would wait in silence."""
    settings = {"bootstrap.servers": broker.address, "group.id": group, "group.protocol": "consumer"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([topic])
        error = refusal_of(consumer)
        assert error.code() == confluent_kafka.KafkaError._FATAL
        assert "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in error.str()
    finally:
        consumer.close()


def refusal_of(consumer: confluent_kafka.Consumer) -> confluent_kafka.KafkaError:
    """The first error that a consumer reports."""
    deadline = time.monotonic() + AT_ONCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None:
            error = message.error()
            assert error is not None
            return error
    raise AssertionError("the consumer waits in silence")


def poll_for(consumer: confluent_kafka.ShareConsumer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        consumer.poll(0.1)


def test_share_consumers_are_refused_at_once(broker: BrokerProcess, topic: str, group: str) -> None:
    consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        consumer.subscribe([topic])
        with pytest.raises(confluent_kafka.KafkaException) as refusal:
            poll_for(consumer, AT_ONCE_S)
        assert refusal.value.args[0].code() == confluent_kafka.KafkaError.UNSUPPORTED_VERSION
        assert refusal.value.args[0].fatal()
    finally:
        consumer.close()


def test_a_topic_that_is_not_there_is_not_made_where_that_is_switched_off(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(auto_create_topics=False)
    for client in CLIENTS:
        with client.consumer(broker.address, {}) as consumer:
            assert consumer.partitions(topic) == set()
    confluent = CLIENTS[0]
    with pytest.raises(DeliveryFailed) as refusal:
        confluent.produce(broker.address, topic, [Sent(0, None, b"value")], {"topic.metadata.propagation.max.ms": 500})
    assert refusal.value.code in (
        confluent_kafka.KafkaError._UNKNOWN_TOPIC,
        confluent_kafka.KafkaError._UNKNOWN_PARTITION,
        confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    )


def test_a_topic_is_made_when_it_is_first_used(broker: BrokerProcess, client: Client, topic: str) -> None:
    assert client.produce(broker.address, topic, [Sent(0, None, b"value")], {}) == [0]
    with client.consumer(broker.address, {}) as consumer:
        assert consumer.partitions(topic) == {0}
