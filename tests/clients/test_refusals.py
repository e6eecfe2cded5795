"""What cannot be done is said in the client's own words, at once, and not tried for ever."""

from __future__ import annotations

import time

import aiokafka.errors
import confluent_kafka
import kafka.errors
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


def test_a_transactional_producer_is_refused_at_once(broker: BrokerProcess, client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(
        (confluent_kafka.KafkaException, kafka.errors.KafkaError, aiokafka.errors.KafkaError)
    ) as refusal:
        client.begin_transactions(broker.address)
    assert time.monotonic() - began < AT_ONCE_S
    assert not isinstance(refusal.value, kafka.errors.KafkaTimeoutError | aiokafka.errors.KafkaTimeoutError)
    if client.name == "confluent-kafka":
        assert refusal.value.args[0].fatal()


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
