"""confluent-kafka logs in by each mechanism that it offers; what it is told with a wrong password says so."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker_process import wait_until
from tests.logins.secured import SecuredBroker

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
PATIENCE_S = 30


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_lets_in_and_names_the_listeners_own_address(secured: SecuredBroker, mechanism: str) -> None:
    found = AdminClient(secured.confluent(mechanism)).list_topics(timeout=PATIENCE_S)
    assert [broker.port for broker in found.brokers.values()] == [secured.ports["sasl"]]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["root", "nobody", "other/root", "no such/organisation"])
def test_a_wrong_password_is_an_authentication_error(secured: SecuredBroker, mechanism: str, user: str) -> None:
    errors: list[KafkaError] = []
    configs = secured.confluent(mechanism, user, "wrong") | {"error_cb": errors.append, "log_level": 0}
    producer = Producer(configs)

    def is_told() -> bool:
        producer.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_told, "no authentication error")
    assert not [error for error in errors if error.code() == KafkaError._TIMED_OUT]


@pytest.mark.parametrize("topic_format", ["log", "stream"])
def test_large_records_come_back_whole_through_tls(secured: SecuredBroker, topic_format: str) -> None:
    topic, count = f"large-{topic_format}", 100
    admin = AdminClient(secured.confluent())
    admin.create_topics([NewTopic(topic, 2, config={"headrace.format": topic_format})])[topic].result(PATIENCE_S)
    producer = Producer(secured.confluent("SCRAM-SHA-512") | {"linger.ms": 20, "batch.size": 900_000})
    values = {number: bytes([number % 251]) * (number * 997) for number in range(count)}
    for number, value in values.items():
        producer.produce(topic, value, key=str(number), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(secured.confluent("PLAIN") | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: dict[int, bytes | None] = {}
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        key = message.key()
        assert key is not None
        found[int(key)] = message.value()
    consumer.close()
    assert found == values


def test_a_token_lets_in_and_an_expired_one_is_an_authentication_error(secured: SecuredBroker) -> None:
    def client(lifetime_s: float, errors: list[KafkaError]) -> Producer:
        configs = secured.confluent("OAUTHBEARER")
        del configs["sasl.username"], configs["sasl.password"]
        token = secured.signer.token("alice", lifetime_s=lifetime_s)
        # The client believes that its token is good for long.
        return Producer(
            configs | {"oauth_cb": lambda _: (token, time.time() + 600), "error_cb": errors.append, "log_level": 0}
        )

    errors: list[KafkaError] = []
    good = client(300, errors)
    good.poll(0.1)
    assert good.list_topics(timeout=PATIENCE_S).brokers
    assert not errors
    expired = client(-300, errors)

    def is_told() -> bool:
        expired.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_told, "no authentication error")
