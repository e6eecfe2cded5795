"""The doctor's checks of exposure: listeners without encryption, files and sockets that others can open."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from headrace.broker.network.tls import BadCertificate, Certificates
from headrace.cli.doctor.findings import CheckResult, fail, ok, warn
from headrace.cli.serve.tls import check_listeners
from headrace.cli.settings.layers import Loaded, listeners_of, without_password, without_secrets
from headrace.cli.settings.table import Settings
from headrace.security.listeners import Listener, show_address
from headrace.security.mechanisms.plain import PLAIN
from headrace.store.embedded.data_directory import CannotStart, read_record
from headrace.store.embedded.socket import is_private

_SOON = timedelta(days=14)


def check_security(loaded: Loaded, client_config: Path | None) -> list[CheckResult]:
    """All checks of the settings and the files they name."""
    settings = loaded.settings
    listeners = listeners_of(settings)
    if trouble := check_listeners(settings):
        return [fail("listeners", trouble, "`headrace serve` would refuse it")]
    findings = [_check_listener(listener) for listener in listeners]
    if any(not listener.is_loopback or listener.authenticates for listener in listeners):
        findings.append(_check_rights(settings, listeners))
    if any(listener.is_tls for listener in listeners):
        findings.append(_check_certificate(settings))
    secrets = {
        "TLS key": settings.tls_key or settings.tls_cert,
        "administrator's password": settings.admin_password_file,
        "metrics token": settings.metrics_token_file,
        "client config": "" if client_config is None else str(client_config),
        "config file": _config_with_secrets(loaded),
    }
    findings += [_check_file(name, Path(path)) for name, path in secrets.items() if path]
    if not settings.redis:
        findings += _check_socket(settings.data_dir)
    return findings


def _check_listener(listener: Listener) -> CheckResult:
    name = f"listener {listener.name}"
    found = f"{listener.protocol} on {show_address(listener.host, listener.port)}"
    if not listener.is_tls and not listener.is_loopback:
        return warn(name, f"{found}: others on the network can read the traffic", "use SASL_SSL, see docs/security.md")
    if listener.is_sasl and not listener.is_tls and PLAIN in listener.offered(has_keys=False):
        return warn(name, f"{found} accepts passwords without TLS (PLAIN)", "remove PLAIN from its mechanisms")
    if not listener.is_loopback and not listener.authenticates:
        return warn(name, f"{found} does not authenticate clients", "use SASL_SSL, or client-auth=required")
    return ok(name, found)


def _check_rights(settings: Settings, listeners: Sequence[Listener]) -> CheckResult:
    is_on = settings.authorizer == "on" or any(listener.authenticates for listener in listeners)
    if settings.authorizer == "off" or not is_on:
        return warn("rights", "ACLs are not enforced: every client may do everything", "use --authorizer on")
    if settings.allow_everyone_if_no_acl_found:
        advice = "remove --allow-everyone-if-no-acl-found"
        return warn("rights", "resources without an ACL are open to everyone", advice)
    return ok("rights", "everything needs an ACL")


def _config_with_secrets(loaded: Loaded) -> str:
    """The TOML file, if a password or key is written in it."""
    settings = loaded.settings
    shown = {"redis": without_password(settings.redis), "lake_storage": without_secrets(settings.lake_storage)}
    for name, value in shown.items():
        source = loaded.sources.get(name, "").removeprefix("file ")
        if value != getattr(settings, name) and os.path.isfile(source):
            return source
    return ""


def _check_certificate(settings: Settings) -> CheckResult:
    try:
        Certificates(settings.tls_cert, settings.tls_key, settings.tls_ca)
        [found, *_] = x509.load_pem_x509_certificates(Path(settings.tls_cert).read_bytes())
    except BadCertificate as error:
        return fail("certificate", str(error), "correct --tls-cert, --tls-key or --tls-ca")
    ends, now = found.not_valid_after_utc, datetime.now(UTC)
    said = f"{found.subject.rfc4514_string()}, valid until {ends:%Y-%m-%d}"
    if ends < now:
        return fail("certificate", f"{said}: expired", "renew it; the broker takes a new one without a restart")
    if ends < now + _SOON:
        return warn("certificate", said, "renew it soon; the broker takes a new one without a restart")
    return ok("certificate", said)


def _check_file(name: str, path: Path) -> CheckResult:
    """Whether others can read a secret."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return fail(name, f"{path} cannot be read: {error.strerror}", "correct its path")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return warn(name, f"{path} can be read or changed by others", f"chmod 600 {path}")
    return ok(name, f"{path} is accessible to its owner only")


def _check_socket(data_dir: Path) -> list[CheckResult]:
    """Whether others can open the embedded server's socket, and with it read and change everything."""
    try:
        record = read_record(data_dir)
    except (CannotStart, OSError):
        return []
    if record is None or not os.path.exists(record.socket):
        return []
    folder = Path(record.socket).parent
    if not is_private(folder):
        return [warn("store's socket", f"others can enter {folder}", f"chmod 700 {folder}")]
    return [ok("store's socket", f"{folder} is accessible to its owner only")]
