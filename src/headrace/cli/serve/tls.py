"""Checks of listeners and certificate: a setting that cannot work or is unsafe gives one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.settings.layers import listeners_of
from headrace.cli.settings.table import Settings
from headrace.security.certificate_names import BadRule, CertificateNames
from headrace.security.listeners import EVERYWHERE, Listener, show_address
from headrace.security.mechanisms.oauthbearer import OAUTHBEARER
from headrace.store.embedded.data_directory import CannotStart

if TYPE_CHECKING:
    from headrace.broker.network.tls import Certificates


def check_listeners(settings: Settings) -> str:
    """Why these listeners cannot be opened; empty if they can."""
    if settings.oauth_jwks.startswith("http://"):
        return "--oauth-jwks over http could be tampered with: use https:// or a file"
    try:
        CertificateNames(settings.tls_principal_rules)
    except BadRule as error:
        return f"--tls-principal-rules: {error}"
    for listener in listeners_of(settings):
        if trouble := _trouble(listener, settings):
            return trouble
    return ""


def _trouble(listener: Listener, settings: Settings) -> str:
    what = f"listener {listener.name}" if settings.listen else f"--host {settings.host}"
    if listener.host in EVERYWHERE and listener.advertised is None:
        how = "advertised=HOST:PORT to it" if settings.listen else "--advertised HOST:PORT"
        return f"{what} listens on all addresses, so clients need one to connect to: add {how}"
    if not listener.is_tls and not listener.is_loopback and not settings.allow_plaintext:
        return (
            f"{what} would serve {listener.protocol} on {show_address(listener.host, listener.port)}, where other "
            "machines can read the traffic; use SASL_SSL (docs/security.md), or --allow-plaintext"
        )
    if listener.is_tls and not settings.tls_cert:
        return f"{what} needs a certificate: add --tls-cert FILE and --tls-key FILE"
    if listener.asks_for_certificates and not settings.tls_ca:
        return f"{what} asks for client certificates: add --tls-ca FILE to check them against"
    if OAUTHBEARER in listener.mechanisms and not settings.oauth_jwks:
        return f"{what} offers OAUTHBEARER: add --oauth-jwks FILE or URL with the keys that sign tokens"
    return ""


def open_certificates(settings: Settings) -> Certificates | None:
    """The certificate; None if no listener needs one."""
    if not any(listener.is_tls for listener in listeners_of(settings)):
        return None
    from headrace.broker.network.tls import BadCertificate, Certificates

    try:
        return Certificates(settings.tls_cert, settings.tls_key, settings.tls_ca)
    except BadCertificate as error:
        raise CannotStart(f"TLS cannot be served: {error}") from None
