"""SASL on a new connection, before anything else is asked: PLAIN and SCRAM (RFC 5802), as Kafka carries them.

Apart from connection.py because it is a dialogue of its own. Its two messages, a name and a blob, are put together
here: they come before the versions are negotiated, and brokers keep these first versions for that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable

import msgspec

HANDSHAKE, HANDSHAKE_VERSION = 17, 1
AUTHENTICATE, AUTHENTICATE_VERSION = 36, 0
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *HASHES)

_ITERATIONS = range(4096, 1_000_001)
"""The fewest are those of RFC 7677, a server that asks for fewer is after the password; more would keep us busy."""

Exchange = Callable[[int, int, bytes], bytes]
"""The body of the answer to a request, of which API key, version and body are given."""


class SaslRefused(Exception):
    """The broker does not let us in, or is not the one that it should be, in one sentence."""


class Sasl(msgspec.Struct, frozen=True):
    """Who we are, and how we prove it."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Sasl({self.mechanism!r}, {self.username!r})"


def authenticate(exchange: Exchange, sasl: Sasl) -> None:
    """Proves who we are, or raises `SaslRefused`."""
    try:
        _shake_hands(exchange, sasl.mechanism)
        if sasl.mechanism == "PLAIN":
            _send(exchange, f"\0{sasl.username}\0{sasl.password}".encode())
        else:
            _scram(exchange, sasl)
    except (ValueError, struct.error) as error:
        raise SaslRefused(f"The broker's answer is not one of SASL: {error}.") from error


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


def _send(exchange: Exchange, token: bytes) -> bytes:
    """The broker's token in return for ours."""
    answer = exchange(AUTHENTICATE, AUTHENTICATE_VERSION, struct.pack(">i", len(token)) + token)
    code, size = struct.unpack_from(">hh", answer)
    message = answer[4 : 4 + max(0, size)]
    if code:
        raise SaslRefused(f"The broker refuses this user: {message.decode(errors='replace') or f'error {code}'}.")
    return answer[4 + len(message) + 4 :]


def _scram(exchange: Exchange, sasl: Sasl) -> None:
    algorithm, nonce = HASHES[sasl.mechanism], secrets.token_urlsafe(24)

    def mac(key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, algorithm)

    user = sasl.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    challenge = _send(exchange, f"n,,{first}".encode()).decode()
    given = _attributes(challenge)
    iterations = int(given["i"])
    if not given["r"].startswith(nonce) or iterations not in _ITERATIONS:
        raise SaslRefused("The broker's challenge is not for us.")
    salted = hashlib.pbkdf2_hmac(algorithm, sasl.password.encode(), base64.b64decode(given["s"]), iterations)
    final = f"c=biws,r={given['r']}"
    proved = f"{first},{challenge},{final}".encode()
    client_key = mac(salted, b"Client Key")
    signature = mac(hashlib.new(algorithm, client_key).digest(), proved)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    verdict = _attributes(_send(exchange, f"{final},p={base64.b64encode(proof).decode()}".encode()).decode())
    if not hmac.compare_digest(base64.b64decode(verdict.get("v", "")), mac(mac(salted, b"Server Key"), proved)):
        raise SaslRefused("The broker does not know this user's password itself: it is not the one that it should be.")


def _attributes(message: str) -> dict[str, str]:
    return {"r": "", "s": "", "i": "0"} | dict(part.split("=", 1) for part in message.split(","))
