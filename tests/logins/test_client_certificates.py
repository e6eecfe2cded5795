"""confluent-kafka, kafka-python and aiokafka log in with a certificate, and are told when it has expired."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.broker_process import wait_until
from tests.logins.secured import SecuredBroker

PATIENCE_S = 30
ALERT = "CERTIFICATE_EXPIRED"

Pair = tuple[Path, Path]


@pytest.fixture
def good(secured: SecuredBroker) -> Pair:
    return secured.authority.sign("carol", organisation="team")


@pytest.fixture
def expired(secured: SecuredBroker) -> Pair:
    return secured.authority.sign("former", organisation="team", days=-1)


def confluent(secured: SecuredBroker, pair: Pair) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.address("ssl"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.ca_file),
        "ssl.certificate.location": str(pair[0]),
        "ssl.key.location": str(pair[1]),
    }


def python_client(secured: SecuredBroker, pair: Pair) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(secured.authority.ca_file))
    context.load_cert_chain(*pair)
    return {"bootstrap_servers": secured.address("ssl"), "security_protocol": "SSL", "ssl_context": context}


def test_confluent_logs_in(secured: SecuredBroker, good: Pair) -> None:
    found = AdminClient(confluent(secured, good)).list_topics(timeout=PATIENCE_S)
    assert [broker.port for broker in found.brokers.values()] == [secured.ports["ssl"]]


def test_confluent_is_told_of_an_expired_one(secured: SecuredBroker, expired: Pair) -> None:
    errors: list[KafkaError] = []
    producer = Producer(confluent(secured, expired) | {"error_cb": errors.append, "log_level": 0})

    def is_told() -> bool:
        producer.poll(0.1)
        return any("alert certificate expired" in error.str() for error in errors)

    wait_until(is_told, "it was not told what is wrong")


def test_kafka_python_logs_in(secured: SecuredBroker, good: Pair) -> None:
    admin = kafka.KafkaAdminClient(**python_client(secured, good))
    assert [broker["port"] for broker in admin.describe_cluster()["brokers"]] == [secured.ports["ssl"]]
    admin.close()


def test_kafka_python_is_told_of_an_expired_one(
    secured: SecuredBroker, expired: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    def is_told() -> bool:
        with pytest.raises(kafka.errors.KafkaError):
            kafka.KafkaAdminClient(**python_client(secured, expired), bootstrap_timeout_ms=500)
        return ALERT in caplog.text

    wait_until(is_told, "the client is not told", 60)


async def test_aiokafka_logs_in(secured: SecuredBroker, good: Pair) -> None:
    admin = AIOKafkaAdminClient(**python_client(secured, good))
    await admin.start()
    assert [broker["port"] for broker in (await admin.describe_cluster())["brokers"]] == [secured.ports["ssl"]]
    await admin.close()


async def test_aiokafka_is_not_let_in_with_an_expired_one(secured: SecuredBroker, expired: Pair) -> None:
    admin = AIOKafkaAdminClient(**python_client(secured, expired))
    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await admin.start()
    await admin.close()
