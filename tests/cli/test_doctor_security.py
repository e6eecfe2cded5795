"""What the doctor says of what is open: listeners, files with secrets, the store's socket; and brokers with logins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.cli.doctor.findings import Severity
from headrace.cli.doctor.security import check_security
from headrace.cli.settings.layers import load
from tests.certificates import Authority
from tests.cli.conftest import run_process
from tests.logins.secured import SecuredBroker


def found(client_config: Path | None = None, **flags: object) -> dict[str, tuple[Severity, str]]:
    loaded = load(None, {}, flags)
    return {one.check: (one.level, f"{one.found} {one.advice}") for one in check_security(loaded, client_config)}


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ({"listen": ("a=PLAINTEXT://10.0.0.5:1",), "allow_plaintext": True}, Severity.WARN),
        ({"listen": ("a=PLAINTEXT://10.0.0.5:1",), "allow_plaintext": True, "authorizer": "on"}, Severity.OK),
        ({"listen": ("a=SASL_PLAINTEXT://127.0.0.1:1",)}, Severity.OK),
        ({"listen": ("a=SASL_PLAINTEXT://127.0.0.1:1",), "authorizer": "off"}, Severity.WARN),
        ({"listen": ("a=SASL_PLAINTEXT://127.0.0.1:1",), "allow_everyone_if_no_acl_found": True}, Severity.WARN),
    ],
)
def test_what_nobody_needs_a_right_for_is_told(tmp_path: Path, flags: dict[str, Any], level: Severity) -> None:
    assert found(**flags, data_dir=tmp_path)["rights"][0] is level


def test_a_config_file_with_a_password_is_told(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('redis = "redis://:secret@127.0.0.1:6379/0"')
    for mode, level in ((0o644, Severity.WARN), (0o600, Severity.OK)):
        file.chmod(mode)
        said = {one.check: one.level for one in check_security(load(file, {}, {}), None)}
        assert said["config file"] is level
    file.write_text('redis = "redis://127.0.0.1:6379/0"')
    assert "config file" not in {one.check for one in check_security(load(file, {}, {}), None)}


@pytest.mark.parametrize(
    ("listener", "level", "words"),
    [
        ("a=PLAINTEXT://127.0.0.1:1", Severity.OK, "PLAINTEXT on 127.0.0.1:1"),
        ("a=PLAINTEXT://10.0.0.5:1", Severity.WARN, "others on the network can read the traffic"),
        ("a=SASL_PLAINTEXT://127.0.0.1:1", Severity.OK, ""),
        ("a=SASL_PLAINTEXT://127.0.0.1:1,mechanisms=PLAIN", Severity.WARN, "accepts passwords without TLS"),
        ("a=SSL://10.0.0.5:1", Severity.WARN, "does not authenticate clients"),
        ("a=SSL://10.0.0.5:1,client-auth=required", Severity.OK, ""),
        ("a=SASL_SSL://10.0.0.5:1", Severity.OK, ""),
    ],
)
def test_a_listener_that_is_open_is_told(tmp_path: Path, listener: str, level: Severity, words: str) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("broker")
    said = found(
        listen=(listener,),
        allow_plaintext=True,
        tls_cert=str(certificate),
        tls_key=str(key),
        tls_ca=str(authority.ca_file),
        data_dir=tmp_path / "data",
    )["listener a"]
    assert said[0] is level
    assert words in said[1]


def test_secrets_that_others_can_read_and_certificates_that_end_are_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    flags: dict[str, Any] = {"listen": ("a=SASL_SSL://10.0.0.5:1",), "data_dir": tmp_path / "data"}
    certificate, key = authority.sign("broker")
    said = found(key, **flags, tls_cert=str(certificate), tls_key=str(key))
    assert {level for level, _ in said.values()} == {Severity.OK}
    key.chmod(0o640)
    password = tmp_path / "password"
    password.write_text("x")
    password.chmod(0o604)
    said = found(password, **flags, tls_cert=str(certificate), tls_key=str(key), admin_password_file=str(password))
    for check in ("TLS key", "client config", "administrator's password"):
        assert said[check][0] is Severity.WARN
        assert "chmod 600" in said[check][1]
    for days, level in ((5, Severity.WARN), (-1, Severity.FAIL)):
        certificate, key = authority.sign("soon", days=days)
        assert found(**flags, tls_cert=str(certificate), tls_key=str(key))["certificate"][0] is level
    certificate.write_text("x")
    assert found(**flags, tls_cert=str(certificate), tls_key=str(key))["certificate"][0] is Severity.FAIL


def test_the_doctor_looks_at_a_broker_that_wants_a_login(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path).start()
    flags = ["--data-dir", str(secured.process.data_dir), "--tls-ca", str(secured.authority.ca_file)]
    flags += ["--tls-cert", str(secured.certificate), "--tls-key", str(secured.key)]
    listeners = secured.process.settings["listen"]
    assert isinstance(listeners, list)
    flags += [f"--listen={listener}" for listener in listeners]
    try:
        ran = run_process("doctor", *flags)
        assert "not checked: it requires SASL_SSL" in ran.out
        assert ran.out.count("a broker answers there") == 2
        assert ran.out.count("it requires a client certificate") == 1
        assert ran.code == 0
        ran = run_process("doctor", "--probe", "--client-config", str(secured.client_config()), *flags)
        assert "round trip" in ran.out
        assert "headrace, cluster" in ran.out
        ran = run_process("doctor", "--client-config", str(secured.client_config(password="wrong")), *flags)
        assert "rejected this user" in ran.out
        assert ran.code == 1
        socket_folder = next(line for line in ran.out.splitlines() if "store's socket" in line)
        assert socket_folder.startswith("ok")
    finally:
        secured.process.end()
