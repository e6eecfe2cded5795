"""A listener of Apache Kafka that asks for a password, and the one user that it knows."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are there, and not in its list
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.client.sasl import HASHES

LIMIT_S = 60
ITERATIONS = 4096
USER, PASSWORD = "ann", "drum-roll-7"
WITH_PASSWORD = ("PLAIN", *HASHES)
"""The mechanisms that ask for a password."""
_PACKAGE = "org.apache.kafka.common.security"
_SCRAM = f"{_PACKAGE}.scram.ScramLoginModule required;"


def properties(port: int) -> str:
    """What is added to the node's settings."""
    plain = login("PLAIN", USER, PASSWORD).rstrip(";") + f' user_{USER}="{PASSWORD}";'
    lines = [
        f"listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},ASKING://127.0.0.1:{port}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},ASKING://127.0.0.1:{port}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,ASKING:SASL_PLAINTEXT",
        f"sasl.enabled.mechanisms={','.join(WITH_PASSWORD)}",
        f"listener.name.asking.plain.sasl.jaas.config={plain}",
        *(f"listener.name.asking.{name.lower()}.sasl.jaas.config={_SCRAM}" for name in HASHES),
    ]
    return "\n".join(lines) + "\n"


def login(mechanism: str, user: str, password: str) -> str:
    """The line that Kafka's own client takes user and password from."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f'{_PACKAGE}.{module} required username="{user}" password="{password}";'


def make_user(address: str) -> None:
    """Gives the user the SCRAM credentials; for PLAIN the node's settings do."""
    admin = AdminClient({"bootstrap.servers": address})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, ITERATIONS)
        made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, PASSWORD.encode())])
        made[USER].result(LIMIT_S)
