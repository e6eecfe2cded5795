"""TLS: versions, client certificates and the rules that name their users, renewal without a restart."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from signal import Signals

import pytest
from cryptography import x509

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.client.connection import ClientSecurity
from tests.broker_process import wait_until
from tests.certificates import Authority
from tests.logins.secured import SecuredBroker


def served_certificate(secured: SecuredBroker, context: ssl.SSLContext | None = None) -> x509.Certificate:
    context = context or ssl.create_default_context(cafile=str(secured.authority.ca_file))
    with socket.create_connection(("127.0.0.1", secured.ports["sasl"]), timeout=20) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as line:
            content = line.getpeercert(binary_form=True)
            assert content is not None
            return x509.load_der_x509_certificate(content)


@pytest.mark.parametrize(
    ("version", "is_served"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
def test_tls_is_1_2_or_1_3(secured: SecuredBroker, version: ssl.TLSVersion, is_served: bool) -> None:
    context = ssl.create_default_context(cafile=str(secured.authority.ca_file))
    context.minimum_version = context.maximum_version = version
    with contextlib.nullcontext() if is_served else pytest.raises((ssl.SSLError, ConnectionError)):
        served_certificate(secured, context)


def with_certificate(secured: SecuredBroker, certificate: Path | None, key: Path | None) -> Cluster:
    security = ClientSecurity(
        tls=True,
        ca_file=str(secured.authority.ca_file),
        certificate_file=str(certificate) if certificate else None,
        key_file=str(key) if key else None,
    )
    return Cluster(secured.address("ssl"), 10, "tests", security.ssl_context())


@pytest.mark.parametrize(
    ("name", "organisation", "principal"),
    [("ann", "team", "User:ann"), ("bob", "elsewhere", "User:CN=bob,O=elsewhere"), ("eve/x", "team", None)],
)
def test_a_certificate_is_a_login(secured: SecuredBroker, name: str, organisation: str, principal: str | None) -> None:
    certificate, key = secured.authority.sign(name, organisation=organisation, file=name.replace("/", "-"))
    before = len(secured.process.log)
    with with_certificate(secured, certificate, key) as cluster:
        Admin(cluster).describe_cluster()
    shown = principal or "User:CN=eve/x,O=team"  # what the rule matched may not name an organisation: DEFAULT is next
    wait_until(lambda: shown in secured.process.log[before:], "the login was not told")


def test_without_a_certificate_or_with_somebody_elses_nobody_gets_in(secured: SecuredBroker, tmp_path: Path) -> None:
    strangers = Authority(tmp_path).sign("ann", organisation="team")
    expired = secured.authority.sign("old", organisation="team", days=-1)
    for certificate, key in ((None, None), strangers, expired):
        with with_certificate(secured, certificate, key) as cluster, pytest.raises(BrokerUnreachable):
            Admin(cluster).describe_cluster()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_is_told_what_is_wrong_with_its_certificate(secured: SecuredBroker, version: ssl.TLSVersion) -> None:
    """Without the alert clients take the end of the connection for trouble of the network, and try for ever."""
    context = ssl.create_default_context(cafile=str(secured.authority.ca_file))
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(*secured.authority.sign("former", organisation="team", days=-1))

    def say_something() -> None:
        with socket.create_connection(("127.0.0.1", secured.ports["ssl"]), timeout=20) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as line:
                line.sendall(b"a request that comes with the end of the handshake")
                line.recv(1)

    with pytest.raises(ssl.SSLError, match="ALERT_CERTIFICATE_EXPIRED"):
        say_something()


def test_a_certificate_is_renewed_without_a_restart_and_a_bad_one_is_not_taken(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path).start()
    try:
        first = served_certificate(secured)
        new_certificate, new_key = secured.authority.sign("renewed")
        # Only the key: for a moment the two do not fit, and with a broken certificate nothing does.
        old = secured.certificate.read_bytes()
        secured.key.write_bytes(new_key.read_bytes())
        wait_until(lambda: "could not be reloaded; the old one stays in use" in secured.process.log, "it was not said")
        assert served_certificate(secured) == first
        secured.certificate.write_bytes(new_certificate.read_bytes())
        wait_until(lambda: served_certificate(secured) != first, "it was not renewed")
        assert old != secured.certificate.read_bytes()
        told = secured.process.log.count("the certificate was reloaded")
        secured.process.send_signal(Signals.SIGHUP)
        wait_until(lambda: secured.process.log.count("the certificate was reloaded") > told, "SIGHUP did nothing")
        with secured.cluster() as cluster:
            assert Admin(cluster).describe_cluster().nodes
    finally:
        secured.process.end()
