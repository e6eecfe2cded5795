"""kafka-python and aiokafka log in by each mechanism that they offer, and say so when a password is wrong."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.admin import AIOKafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker

PASSWORDS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]


class PythonTokens(KafkaPythonTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class AsyncTokens(AiokafkaTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def context(secured: SecuredBroker) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(secured.authority.ca_file))


def python_client(secured: SecuredBroker, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": secured.address(),
        "security_protocol": "SASL_SSL",
        "ssl_context": context(secured),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_kafka_python_logs_in(secured: SecuredBroker, mechanism: str) -> None:
    admin = kafka.KafkaAdminClient(**python_client(secured, mechanism, ADMIN_PASSWORD))
    assert [broker["port"] for broker in admin.describe_cluster()["brokers"]] == [secured.ports["sasl"]]
    admin.close()


def python_client_is_refused(configs: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """It tries again until its time is over, and logs why."""
    with pytest.raises(kafka.errors.KafkaTimeoutError):
        kafka.KafkaAdminClient(**configs, bootstrap_timeout_ms=500)
    assert "SaslAuthenticationFailedError" in caplog.text


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_kafka_python_is_told_of_a_wrong_password(
    secured: SecuredBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    python_client_is_refused(python_client(secured, mechanism, "wrong"), caplog)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_kafka_python_logs_in_with_a_token(secured: SecuredBroker, algorithm: str) -> None:
    tokens = PythonTokens(secured.signer.token("alice", algorithm=algorithm))
    configs = python_client(secured, "OAUTHBEARER", "") | {"sasl_oauth_token_provider": tokens}
    kafka.KafkaAdminClient(**configs).close()


def test_kafka_python_is_told_of_an_expired_token(secured: SecuredBroker, caplog: pytest.LogCaptureFixture) -> None:
    tokens = PythonTokens(secured.signer.token("alice", lifetime_s=-60))
    configs = python_client(secured, "OAUTHBEARER", "") | {"sasl_oauth_token_provider": tokens}
    python_client_is_refused(configs, caplog)


def async_client(secured: SecuredBroker, mechanism: str, password: str) -> dict[str, Any]:
    return python_client(secured, mechanism, password)


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_aiokafka_logs_in(secured: SecuredBroker, mechanism: str) -> None:
    admin = AIOKafkaAdminClient(**async_client(secured, mechanism, ADMIN_PASSWORD))
    await admin.start()
    assert [broker["port"] for broker in (await admin.describe_cluster())["brokers"]] == [secured.ports["sasl"]]
    await admin.close()


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_aiokafka_is_told_of_a_wrong_password(
    secured: SecuredBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AIOKafkaAdminClient(**async_client(secured, mechanism, "wrong"))
    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await admin.start()
    assert "AuthenticationFailedError" in caplog.text or "SaslAuthenticationFailed" in caplog.text
    await admin.close()


async def test_aiokafka_logs_in_with_a_token_but_not_with_an_expired_one(secured: SecuredBroker) -> None:
    """It does not read what is said of its token and goes on as if it was let in: its connection is closed."""
    for lifetime_s in (300, -60):
        tokens = AsyncTokens(secured.signer.token("alice", lifetime_s=lifetime_s))
        configs = async_client(secured, "OAUTHBEARER", "") | {"sasl_oauth_token_provider": tokens}
        admin = AIOKafkaAdminClient(**configs)
        if lifetime_s > 0:
            await asyncio.wait_for(admin.start(), 30)
        else:
            with pytest.raises(aiokafka.errors.KafkaConnectionError):
                await asyncio.wait_for(admin.start(), 30)
        await admin.close()
