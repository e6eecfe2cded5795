"""Limits and rules of logins, with their defaults. Each is a setting of the same name."""

from __future__ import annotations

import msgspec


class LoginOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of logins."""

    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tls_principal_rules: str = "DEFAULT"
    tls_handshakes_per_second: int = 300
    login_timeout_ms: int = 10_000
    unauthenticated_max: int = 500
    unauthenticated_per_address_max: int = 250
    connections_max_reauth_ms: int = 0
    oauth_jwks: str = ""
    oauth_issuer: str = ""
    oauth_audience: str = ""
    oauth_principal_claim: str = "sub"
    oauth_organisation_claim: str = ""
    oauth_scope: str = ""
    oauth_clock_skew_ms: int = 30_000
