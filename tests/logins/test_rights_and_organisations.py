"""Rights and organisations with real logins: from the command line to a real client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker

PATIENCE_S = 30
PASSWORD = "a-password-that-nobody-guesses-7Kd"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    started = SecuredBroker(tmp_path)
    try:
        yield started.start()
    finally:
        started.process.end()


class Shell:
    """The command line of somebody who logs in."""

    def __init__(self, broker: SecuredBroker, folder: Path, user: str, password: str) -> None:
        self._address = broker.address()
        self._password_file = folder / "password"
        self._password_file.write_text(PASSWORD)
        self._config = folder / f"{user.replace('/', '-')}.properties"
        self._config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={broker.authority.ca_file}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{password}";\n'
        )

    def __call__(self, *arguments: str, fails: int = 0) -> str:
        where = ["--bootstrap", self._address, "--client-config", str(self._config)]
        code = "import sys; from headrace.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments, *where], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def password_file(self) -> str:
        return str(self._password_file)


def test_from_nothing_to_a_user_with_rights(broker: SecuredBroker, tmp_path: Path) -> None:
    root = Shell(broker, tmp_path, ADMIN, ADMIN_PASSWORD)
    root("topics", "create", "orders")
    root("users", "create", "alice", "--password-file", root.password_file)
    config = broker.confluent(user="alice", password=PASSWORD)
    errors: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": 20_000})
    producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert [error and error.code() for error in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert "denied: no rule allows it" in root("acls", "check", "alice", "write", "--topic", "orders", fails=1)

    root("acls", "add", "alice", "read", "write", "--topic", "orders")
    root("acls", "add", "alice", "read", "--group", "readers-", "--prefix")
    explained = root("acls", "check", "alice", "write", "--topic", "orders")
    assert "ALLOW User:alice WRITE on TOPIC orders from any host" in explained
    sent: list[KafkaError | None] = []
    again = Producer(config)
    again.produce("orders", b"hello", on_delivery=lambda error, _: sent.append(error))
    again.flush(PATIENCE_S)
    assert sent == [None]
    consumer = Consumer({**config, "group.id": "readers-1", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()
    listed = root("acls", "list", "--topic", "orders", "--json")
    assert listed.count("User:alice") == 2
    assert "removed 2" in root("acls", "remove", "--user", "alice", "--topic", "orders", "--yes")
    assert "no such ACLs" in root("acls", "remove", "--user", "alice", "--topic", "orders", "--yes")


def test_two_organisations_with_logins_of_their_own(broker: SecuredBroker, tmp_path: Path) -> None:
    root = Shell(broker, tmp_path, ADMIN, ADMIN_PASSWORD)
    root("orgs", "create", "acme", "--admin", "alice", "--password-file", root.password_file, "-l", "topics=1")
    alice = Shell(broker, tmp_path, "acme/alice", PASSWORD)
    for shell in (root, alice):
        shell("topics", "create", "orders")
    assert "organisation's maximum" in alice("topics", "create", "more", fails=1)
    assert "Cluster authorization failed" in alice("orgs", "list", fails=1)
    assert "limit of topics" in root("orgs", "describe", "acme")
    alice("users", "create", "bob", "--password-file", alice.password_file)
    assert "bob" not in root("users", "list")
    theirs = AdminClient(broker.confluent(user="acme/alice", password=PASSWORD))
    ours = AdminClient(broker.confluent())
    ours.create_topics([NewTopic("ours-alone", 1)])["ours-alone"].result(PATIENCE_S)
    assert sorted(theirs.list_topics(timeout=PATIENCE_S).topics) == ["orders"]
    assert sorted(ours.list_topics(timeout=PATIENCE_S).topics) == ["orders", "ours-alone"]
    with pytest.raises(KafkaException):
        theirs.create_topics([NewTopic("more", 1)])["more"].result(PATIENCE_S)
    assert "delete them first" in root("orgs", "delete", "acme", "--yes", fails=1)
    alice("topics", "delete", "orders", "--yes")
    root("orgs", "delete", "acme", "--yes")
    assert "acme" not in root("orgs", "list")
