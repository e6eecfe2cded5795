"""Settings of a console. Addresses come only from here, never from a visitor."""

from __future__ import annotations

import ssl

import msgspec

from headrace.client.connection import ClientSecurity

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class ConsoleSettings(msgspec.Struct, frozen=True):
    """Of one process."""

    bootstrap: str
    security: ClientSecurity = ClientSecurity()
    needs_login: bool = False
    """Visitors log in as their own user, with SASL."""
    read_only: bool = False
    node_sockets: tuple[str, ...] = ()
    """Sockets where this machine's nodes answer /metrics and /health, in order."""
    first_node_id: int = -1
    """The id of the first of these nodes, the others count up; -1 if they choose their own."""
    is_loopback: bool = True
    """Whether the console is reachable from this machine only."""
    tls_certificate: str = ""
    tls_key: str = ""
    public_url: str = ""
    """https://HOST of a TLS proxy in front of the console."""
    durability: str = ""
    """Durability of the embedded server, if there is one."""
    metrics_token: str = ""
    own_certificate: str = ""
    """The broker's own certificate: trusted whoever signed it."""

    def ssl_context(self) -> ssl.SSLContext | None:
        """For connections to the brokers; None without TLS."""
        context = self.security.ssl_context()
        if context is not None and self.own_certificate:
            context.load_verify_locations(self.own_certificate)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    @property
    def is_secure(self) -> bool:
        """Whether browsers use https."""
        return bool(self.tls_certificate) or self.public_url.startswith("https://")
