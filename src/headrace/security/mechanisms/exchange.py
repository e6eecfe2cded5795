"""Common to all mechanisms: a step takes the client's message and returns how the exchange continues."""

from __future__ import annotations

import msgspec

from headrace.security.names import LoginName

MESSAGE_MAX_BYTES = 8 << 10
"""Maximum size of a message with a name and a proof or password."""


class Refused(Exception):
    """The client is not let in. The message is for the client, and the same whatever the reason is."""

    def __init__(self, message: str, claimed: str = "", why: str = "") -> None:
        super().__init__(message)
        self.claimed = claimed
        """The claimed name, for the audit."""
        self.why = why
        """The reason, for the audit alone."""


class SaslStep(msgspec.Struct, frozen=True):
    """The server's next message and, after the last one, who the client is."""

    message: bytes = b""
    user: LoginName | None = None
    expires_at_s: float | None = None
    """By the wall clock: when what the client proved itself with runs out."""


def refused(mechanism: str, claimed: str, why: str) -> Refused:
    """Kafka's exact message, because users search for it."""
    if mechanism == "PLAIN":
        return Refused("Authentication failed: Invalid username or password", claimed, why)
    return Refused(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}",
        claimed,
        why,
    )
