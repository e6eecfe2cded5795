"""PLAIN (RFC 4616): one message with name and password. Checking the password is slow, and done elsewhere."""

from __future__ import annotations

from headrace.security.mechanisms.exchange import MESSAGE_MAX_BYTES, refused

PLAIN = "PLAIN"


def read_plain(message: bytes) -> tuple[str, str]:
    """Name and password; raises `Refused`."""
    if len(message) > MESSAGE_MAX_BYTES:
        raise refused(PLAIN, "", "the message is too long")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise refused(PLAIN, "", "the message is not UTF-8") from None
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise refused(PLAIN, "", "the message has no name and password")
    authorization, name, password = parts
    if authorization not in ("", name):
        raise refused(PLAIN, name, "it asks to act as another user")
    return name, password
