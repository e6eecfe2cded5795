"""SASL on a new connection, before anything else: PLAIN, SCRAM (RFC 5802), OAUTHBEARER, as carried by Kafka.

Separate from connection.py because it is a dialogue of its own. Its two messages, a name and a blob, are encoded here:
they precede version negotiation, and brokers keep these first versions for that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import secrets
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.client.errors import BrokerUnreachable

HANDSHAKE, HANDSHAKE_VERSION = 17, 1
AUTHENTICATE, AUTHENTICATE_VERSION = 36, 1
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER")

_ITERATIONS = range(4096, 1_000_001)
"""At least those of RFC 7677: a server that asks for fewer may be after the password. More would keep us busy."""

Exchange = Callable[[int, int, bytes], bytes]
"""Sends a request (API key, version, body) and returns the body of the response."""


class SaslRefused(BrokerUnreachable):
    """The broker rejects the login, or fails to prove its identity; one sentence says which."""


class Sasl(msgspec.Struct, frozen=True):
    """Our credentials and mechanism."""

    mechanism: str
    username: str = ""
    password: str = ""
    token_file: str = ""
    """Read at each login, so that its tokens can be renewed."""

    def __repr__(self) -> str:
        return f"Sasl({self.mechanism!r}, {self.username!r})"


def authenticate(exchange: Exchange, sasl: Sasl) -> float:
    """Logs in, or raises `SaslRefused`; returns the seconds until the login expires."""
    try:
        _shake_hands(exchange, sasl.mechanism)
        if sasl.mechanism == "PLAIN":
            answer = _send(exchange, f"\0{sasl.username}\0{sasl.password}".encode())
        elif sasl.mechanism == "OAUTHBEARER":
            answer = _bearer(exchange, sasl)
        else:
            answer = _scram(exchange, sasl)
        return answer.lifetime_ms / 1000 or math.inf
    except (ValueError, struct.error) as error:
        raise SaslRefused(f"The broker's response is not a SASL response: {error}.") from error


def _shake_hands(exchange: Exchange, mechanism: str) -> None:
    name = mechanism.encode()
    answer = exchange(HANDSHAKE, HANDSHAKE_VERSION, struct.pack(">h", len(name)) + name)
    code, count = struct.unpack_from(">hi", answer)
    if not code:
        return
    offered, at = [], 6
    for _ in range(count):
        (size,) = struct.unpack_from(">h", answer, at)
        offered.append(answer[at + 2 : at + 2 + size].decode())
        at += 2 + size
    raise SaslRefused(f"The broker does not offer {mechanism}; it offers {', '.join(offered) or 'no SASL here'}.")


class _Answer(NamedTuple):
    """The broker's token and, in the last response, the lifetime of the login; 0: unlimited."""

    token: bytes
    lifetime_ms: int


def _send(exchange: Exchange, token: bytes) -> _Answer:
    """The broker's response to our token."""
    answer = exchange(AUTHENTICATE, AUTHENTICATE_VERSION, struct.pack(">i", len(token)) + token)
    code, size = struct.unpack_from(">hh", answer)
    message = answer[4 : 4 + max(0, size)]
    if code:
        raise SaslRefused(f"The broker rejected this user: {message.decode(errors='replace') or f'error {code}'}.")
    at = 4 + len(message)
    (size,) = struct.unpack_from(">i", answer, at)
    at += 4 + max(0, size)
    return _Answer(answer[at - max(0, size) : at], struct.unpack_from(">q", answer, at)[0])


def _bearer(exchange: Exchange, sasl: Sasl) -> _Answer:
    """The error for a bad token has to be acknowledged; the broker then rejects the login (RFC 7628)."""
    try:
        token = Path(sasl.token_file).read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise SaslRefused(f"The token in {sasl.token_file} cannot be read.") from None
    answer = _send(exchange, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    if answer.token:
        _send(exchange, b"\x01")
        raise SaslRefused("The broker rejected this token.")
    return answer


def _scram(exchange: Exchange, sasl: Sasl) -> _Answer:
    algorithm, nonce = HASHES[sasl.mechanism], secrets.token_urlsafe(24)

    def mac(key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, algorithm)

    user = sasl.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    challenge = _send(exchange, f"n,,{first}".encode()).token.decode()
    given = _attributes(challenge)
    iterations = int(given["i"])
    if not given["r"].startswith(nonce) or iterations not in _ITERATIONS:
        raise SaslRefused("The broker's challenge does not match our request.")
    salted = hashlib.pbkdf2_hmac(algorithm, sasl.password.encode(), base64.b64decode(given["s"]), iterations)
    final = f"c=biws,r={given['r']}"
    proved = f"{first},{challenge},{final}".encode()
    client_key = mac(salted, b"Client Key")
    signature = mac(hashlib.new(algorithm, client_key).digest(), proved)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    answer = _send(exchange, f"{final},p={base64.b64encode(proof).decode()}".encode())
    verdict = _attributes(answer.token.decode())
    if not hmac.compare_digest(base64.b64decode(verdict.get("v", "")), mac(mac(salted, b"Server Key"), proved)):
        raise SaslRefused(
            "The broker could not prove that it knows this user's password: it may not be the broker you mean."
        )
    return answer


def _attributes(message: str) -> dict[str, str]:
    return {"r": "", "s": "", "i": "0"} | dict(part.split("=", 1) for part in message.split(","))
