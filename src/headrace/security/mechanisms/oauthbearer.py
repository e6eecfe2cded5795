"""OAUTHBEARER (RFC 7628): one message with a token. An invalid one is reported first, and refused with the next
message.

Tokens are verified elsewhere, because that takes keys and a clock.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.security.mechanisms.exchange import MESSAGE_MAX_BYTES, refused

OAUTHBEARER = "OAUTHBEARER"
INVALID_TOKEN = b'{"status":"invalid_token"}'
GOODBYE = b"\x01"
"""The client's reply to a refused token."""

_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_MESSAGE = re.compile(rb"n,(?:a=(" + _NAME + rb"))?,\x01((?:[A-Za-z]+=[^\x00\x01]*\x01)*)\x01")
_BEARER = re.compile(rb"(?i:bearer) +([-_.A-Za-z0-9]+)")
TOKEN_MAX_BYTES = 64 << 10


class Bearer(NamedTuple):
    """A client's message."""

    token: str
    authorization: str
    """The user to act as; empty: the token's own."""


def read_bearer(message: bytes) -> Bearer:
    """Raises `Refused`."""
    if len(message) > TOKEN_MAX_BYTES + MESSAGE_MAX_BYTES:
        raise refused(OAUTHBEARER, "", "the message is too long")
    found = _MESSAGE.fullmatch(message)
    pairs = dict(pair.partition(b"=")[::2] for pair in found[2].split(b"\x01")) if found else {}
    bearer = _BEARER.fullmatch(pairs.get(b"auth", b""))
    if found is None or bearer is None:
        raise refused(OAUTHBEARER, "", "the message has no bearer token")
    authorization = (found[1] or b"").replace(b"=2C", b",").replace(b"=3D", b"=")
    return Bearer(bearer[1].decode(), authorization.decode(errors="replace"))
