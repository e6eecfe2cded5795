"""Users: by the API, by the command, by real admin clients; on every node, and after the store was restarted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from signal import Signals

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.client import Admin
from headrace.client.sasl import Sasl, SaslRefused
from headrace.client.users import UserAdmin
from headrace.lake.connecting import Connecting, parse_connecting
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.broker_process import wait_until
from tests.conftest import StartRedis
from tests.logins.secured import ADMIN_PASSWORD, SecuredBroker

PATIENCE_S = 30
COMMAND = [sys.executable, "-c", "from headrace.cli.main import main; main()"]


def run(secured: SecuredBroker, *words: str, user: str = "root", password: str = ADMIN_PASSWORD, said: str = "") -> str:
    """What a command prints as that user; its error if it fails."""
    where = ["--bootstrap", secured.address(), "--client-config", str(secured.client_config(user, password))]
    done = subprocess.run([*COMMAND, *words, *where], input=said, capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else done.stderr


def knows(secured: SecuredBroker, user: str, password: str) -> bool:
    """For waiting: while a node hears of a change, one mechanism may let in what the one before did not."""
    return all(answers(secured, user, password))


def lets_in(secured: SecuredBroker, user: str, password: str) -> bool:
    """Where the node knows what there is to know: all mechanisms agree."""
    found = answers(secured, user, password)
    assert len(set(found)) == 1, found
    return found[0]


def answers(secured: SecuredBroker, user: str, password: str) -> list[bool]:
    """Of each mechanism: whether it lets in."""
    found = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        with secured.cluster(Sasl(mechanism, user, password)) as cluster:
            try:
                found.append(bool(Admin(cluster).describe_cluster().nodes))
            except SaslRefused:
                found.append(False)
    return found


def test_the_command_creates_lists_changes_and_deletes(secured: SecuredBroker, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first secret\n")
    assert "created carla" in run(secured, "users", "create", "carla", "--password-file", str(file))
    assert "user carla already exists" in run(secured, "users", "create", "carla", "--password-file", str(file))
    assert lets_in(secured, "carla", "first secret")
    assert lets_in(secured, "default/carla", "first secret")
    assert "carla" in run(secured, "users", "list")
    assert "changed" in run(secured, "users", "password", "carla", "--password-file", "-", said="second secret\n")
    assert not lets_in(secured, "carla", "first secret")
    assert lets_in(secured, "carla", "second secret")
    assert "deleted carla" in run(secured, "users", "delete", "carla")
    assert not lets_in(secured, "carla", "second secret")
    assert "there is no user carla" in run(secured, "users", "delete", "carla")


def test_a_password_is_not_taken_from_where_others_could_read_it(secured: SecuredBroker) -> None:
    assert "no terminal to ask for the password" in run(secured, "users", "create", "dora")
    assert "unexpected extra argument" in run(secured, "users", "create", "dora", "secret")


def test_a_command_says_that_the_password_is_wrong(secured: SecuredBroker) -> None:
    said = run(secured, "topics", "list", password="wrong")
    assert said.startswith("Error: The broker rejected this user: Authentication failed")
    assert said.count("\n") == 1


def test_commands_log_in(secured: SecuredBroker) -> None:
    assert "created" in run(secured, "topics", "create", "by-command")
    run(secured, "produce", "by-command", "hello")
    assert "hello" in run(secured, "consume", "by-command")
    assert "Error" not in run(secured, "groups", "list")


def test_an_admin_client_sets_and_describes_credentials(secured: SecuredBroker) -> None:
    admin = AdminClient(secured.confluent())
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 10_000)
    change = UserScramCredentialUpsertion("emil", info, b"emil's password")
    admin.alter_user_scram_credentials([change])["emil"].result(PATIENCE_S)
    described = admin.describe_user_scram_credentials(["emil"])
    assert isinstance(described, dict)
    found = described["emil"].result(PATIENCE_S)
    assert [(one.mechanism, one.iterations) for one in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 10_000)
    ]
    with secured.cluster(Sasl("PLAIN", "emil", "emil's password")) as cluster:
        assert Admin(cluster).describe_cluster().nodes
    gone = UserScramCredentialDeletion("emil", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([gone])["emil"].result(PATIENCE_S)
    with secured.cluster() as ours:
        assert UserAdmin(ours).find("emil") is None


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (ScramCredentialUpsertion("", 1, 8_192, b"salt", bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("a/b", 1, 8_192, b"salt", bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("f", 1, 4_095, b"salt", bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("f", 1, 16_385, b"salt", bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("f", 1, 8_192, b"", bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("f", 2, 8_192, b"salt", bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("f", 3, 8_192, b"salt", bytes(32)), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("f", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("f", 1), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_what_cannot_be_a_credential_gets_kafkas_error(
    secured: SecuredBroker, row: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode
) -> None:
    if isinstance(row, ScramCredentialDeletion):
        request = AlterUserScramCredentialsRequest([row], [])
    else:
        request = AlterUserScramCredentialsRequest([], [row])
    with secured.cluster() as cluster:
        cluster.refresh([])
        [result] = cluster.any_node().send_for(request, AlterUserScramCredentialsResponse).results
        assert (result.user, result.error_code) == (row.name, code)
        twice = AlterUserScramCredentialsRequest([ScramCredentialDeletion("g", 1)] * 2, [])
        [result] = cluster.any_node().send_for(twice, AlterUserScramCredentialsResponse).results
        assert result.error_code == ErrorCode.DUPLICATE_RESOURCE


def test_users_reach_every_node_and_stay_when_the_store_restarts(tmp_path: Path, start_redis: StartRedis) -> None:
    redis = start_redis()
    first = SecuredBroker(tmp_path / "first", redis=redis.url)
    second = SecuredBroker(tmp_path / "second", redis=redis.url, node_id=1)
    try:
        first.start()
        second.start()
        first.create_user("gina", "gina's password")
        wait_until(lambda: knows(second, "gina", "gina's password"), "the other node did not hear of her", timeout_s=5)
        redis.stop(Signals.SIGKILL)
        redis.start()
        wait_until(lambda: knows(first, "gina", "gina's password"), "she is gone", timeout_s=20)
        assert lets_in(second, "gina", "gina's password")
        assert not lets_in(first, "gina", "wrong")
    finally:
        first.process.end()
        second.process.end()


def test_the_lake_logs_in_with_sparks_options(secured: SecuredBroker) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"

    def connecting(password: str) -> Connecting:
        return parse_connecting(
            {
                "bootstrap.servers": secured.address(),
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{module} required username="root" password="{password}";',
                "ssl.truststore.location": str(secured.authority.ca_file),
            }
        )

    with connecting(ADMIN_PASSWORD).patient_cluster() as cluster:
        assert Admin(cluster).describe_cluster().nodes
    with pytest.raises(SaslRefused, match="Authentication failed"):  # at once: it is not waited for
        connecting("wrong").patient_cluster()


def test_the_lake_logs_in_with_a_certificate(secured: SecuredBroker) -> None:
    certificate, key = secured.authority.sign("spark", organisation="team")
    both = secured.folder / "spark.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    options = {
        "bootstrap.servers": secured.address("ssl"),
        "security.protocol": "SSL",
        "ssl.keystore.location": str(both),
        "ssl.truststore.location": str(secured.authority.ca_file),
    }
    with parse_connecting(options).cluster() as cluster:
        assert Admin(cluster).describe_cluster().nodes
