"""No secret gets out: not into a log at any level, an error, a config, a command's output, or a child's environment."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from headrace.cli.serve.administrator import take_admin_password
from headrace.cli.settings.table import Settings
from headrace.client import Admin
from headrace.client.sasl import Sasl, SaslRefused
from tests.logins.secured import ADMIN_PASSWORD, SecuredBroker
from tests.logins.test_before_login import connected, log_in, shake, token
from tests.logins.test_users import COMMAND, run

WRONG, USERS, CHANGED = "a-wrong-password-7Kd", "hugos-first-password-3Xw", "hugos-other-password-8Vb"


def attempt(secured: SecuredBroker, sasl: Sasl, said: list[str]) -> None:
    with secured.cluster(sasl) as cluster:
        try:
            Admin(cluster).describe_cluster()
        except SaslRefused as refusal:
            said.append(str(refusal))


def test_the_administrators_password_is_taken_out_of_what_other_processes_inherit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_ADMIN_PASSWORD", ADMIN_PASSWORD)
    assert take_admin_password(Settings(admin_user="root")) == ADMIN_PASSWORD
    inherited = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    assert "PATH=" in inherited
    assert ADMIN_PASSWORD not in inherited


def test_no_secret_is_in_anything_that_is_written_or_shown(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path, log_level="debug", log_format="json").start()
    said: list[str] = []
    token_file = tmp_path / "token"
    tokens = [secured.signer.token("alice"), secured.signer.token("alice", lifetime_s=-60), "not.a.token"]
    try:
        said.append(run(secured, "users", "create", "hugo", "--password-file", "-", said=USERS))
        said.append(run(secured, "users", "password", "hugo", "--password-file", "-", said=CHANGED))
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            for user, password in (("hugo", CHANGED), ("hugo", WRONG), ("nobody", WRONG), (f"hugo/{WRONG}", "x")):
                attempt(secured, Sasl(mechanism, user, password), said)
        for content in tokens:
            token_file.write_text(content)
            attempt(secured, Sasl("OAUTHBEARER", token_file=str(token_file)), said)
        with connected(secured) as line:
            log_in(line, WRONG)
        for garbage in (f"\0\0{WRONG}", f"{WRONG}", f"root\0{WRONG}\0"):
            with connected(secured) as line, contextlib.suppress(AssertionError):
                line.sendall(shake("PLAIN") + token(garbage.encode()))
                line.recv(4096)
        said.append(run(secured, "users", "list", "--json"))
        said.append(run(secured, "topics", "list", user="hugo", password=WRONG))
        resource = ConfigResource(ConfigResource.Type.BROKER, "0")
        admin = AdminClient(secured.confluent())
        configs = admin.describe_configs([resource])[resource].result(30)
        said += [f"{name}={config.value}" for name, config in configs.items()]
        environment = {"HEADRACE_ADMIN_PASSWORD": ADMIN_PASSWORD, "PATH": "/bin"}
        said.append(subprocess.run([*COMMAND, "config"], env=environment, capture_output=True, text=True).stdout)
        secured.process.stop()
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    finally:
        secured.process.end()
    everything = secured.process.log + "\n".join(said)
    assert "login refused" in everything
    # Of a name that was a password by mistake the audit tells, as of every name: that is what it is for.
    everything = everything.replace(f"hugo/{WRONG}", "")
    for secret in (ADMIN_PASSWORD, WRONG, USERS, CHANGED, *tokens[:2], *(one.split(".")[2] for one in tokens[:2])):
        assert secret not in everything
        assert secret.encode() not in stored
