"""What a console is started with. Addresses come from here alone, never from a visitor."""

from __future__ import annotations

import ssl

import msgspec

from headrace.client.properties import ClientSecurity

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class ConsoleSettings(msgspec.Struct, frozen=True):
    """Of one process."""

    bootstrap: str
    security: ClientSecurity = ClientSecurity()
    needs_login: bool = False
    """Visitors log in with their own name, by SASL."""
    read_only: bool = False
    node_sockets: tuple[str, ...] = ()
    """Where the nodes of this machine answer /metrics and /health, in their order."""
    is_loopback: bool = True
    """Whether only this machine reaches the console."""
    tls_certificate: str = ""
    tls_key: str = ""
    public_url: str = ""
    """https://HOST under which a proxy with TLS shows the console."""
    durability: str = ""
    """Of the embedded store, where the broker has one."""
    metrics_token: str = ""
    own_certificate: str = ""
    """The broker's: trusted as it is, whoever signed it."""

    def ssl_context(self) -> ssl.SSLContext | None:
        """For connections to the brokers; None without TLS."""
        context = self.security.ssl_context()
        if context is not None and self.own_certificate:
            context.load_verify_locations(self.own_certificate)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it by https."""
        return bool(self.tls_certificate) or self.public_url.startswith("https://")
