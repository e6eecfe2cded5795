"""Password verifiers (RFC 5802), from which the password cannot be recovered.

A verifier serves both password mechanisms: SCRAM compares with its keys, PLAIN derives them from the password sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
NUMBERS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""The mechanisms' numbers in KIP-554."""

LEAST_ITERATIONS, DEFAULT_ITERATIONS, MOST_ITERATIONS = 4_096, 8_192, 16_384
SALT_BYTES = 20


class Verifier(msgspec.Struct, frozen=True):
    """The keys of one user for one SCRAM mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Verifier(iterations={self.iterations})"


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The slow step: milliseconds. Never on the event loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def verifier_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Verifier:
    """The stored verifier of a salted password."""
    algorithm = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return Verifier(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", algorithm))


def new_verifier(mechanism: str, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> Verifier:
    """The verifier of a password. As slow as `salted_password`."""
    return verifier_of(mechanism, salted_password(mechanism, password.encode(), salt, iterations), salt, iterations)


def is_password(mechanism: str, verifier: Verifier, password: str) -> bool:
    """Whether the verifier was made from this password. As slow as `salted_password`."""
    found = new_verifier(mechanism, password, verifier.salt, verifier.iterations)
    return hmac.compare_digest(found.stored_key, verifier.stored_key)


def fake_verifier(secret: bytes, mechanism: str, login_name: str) -> Verifier:
    """One for a user that is not there: the same one whenever it is asked for, and no password fits it."""

    def of(what: bytes) -> bytes:
        return hmac.digest(secret, what + b"\0" + mechanism.encode() + b"\0" + login_name.encode(), "sha512")

    size = hashlib.new(HASHES[mechanism]).digest_size
    return Verifier(of(b"salt")[:SALT_BYTES], DEFAULT_ITERATIONS, of(b"stored key")[:size], of(b"server key")[:size])


class User(msgspec.Struct, frozen=True):
    """A user as it is stored."""

    verifiers: Mapping[str, Verifier] = {}
    """By mechanism."""
    is_super: bool = False
    """May do everything in its organisation."""
