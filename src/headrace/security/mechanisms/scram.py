"""SCRAM, server side (RFC 5802, 7677): two messages from the client, two answers.

An unknown user is asked for its proof like any other, with a derived verifier, and fails where a wrong password fails.
So nobody can find out which users exist, and both cost the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable

from headrace.security.mechanisms.exchange import MESSAGE_MAX_BYTES, SaslStep, refused
from headrace.security.names import LoginName, parse_login_name
from headrace.security.verifiers import HASHES, Verifier

FindVerifier = Callable[[LoginName | None, str], tuple[Verifier, bool]]
"""The verifier for a login name, as parsed and as written, and whether the user is there: if not, it is made up."""

_TEXT = r"[^\x00,]"
_FIRST = re.compile(rf"(n,(?:a={_TEXT}*)?,)(n=({_TEXT}+),r=([\x21-\x2b\x2d-\x7e]+))(,.*)?", re.DOTALL)
_AUTHORIZATION = re.compile(r"n,a=(.*),", re.DOTALL)
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[^,]+)*?),p=([A-Za-z0-9+/=]+)")
_LONGEST_NONCE = 1_024


class ScramServer:
    """One exchange."""

    def __init__(self, mechanism: str, find: FindVerifier, nonce: str) -> None:
        self._mechanism = mechanism
        self._algorithm = HASHES[mechanism]
        self._find = find
        self._server_nonce = nonce
        self._name: LoginName | None = None
        self._claimed = ""
        self._verifier: Verifier | None = None
        self._is_there = False
        self._gs2_header = ""
        self._proved = ""
        self._nonce = ""

    def step(self, message: bytes) -> SaslStep:
        """Raises `Refused`."""
        try:
            text = message[: MESSAGE_MAX_BYTES + 1].decode()
        except UnicodeDecodeError:
            raise refused(self._mechanism, self._claimed, "a message is not UTF-8") from None
        if len(message) > MESSAGE_MAX_BYTES:
            raise refused(self._mechanism, self._claimed, "a message is too long")
        return self._first(text) if self._verifier is None else self._final(text, self._verifier)

    def _first(self, text: str) -> SaslStep:
        found = _FIRST.fullmatch(text)
        if found is None or len(found[4]) > _LONGEST_NONCE:
            raise refused(self._mechanism, "", "the first message cannot be read")
        self._gs2_header, bare, name, client_nonce, extensions = found.groups()
        self._claimed = _unescaped(name)
        if extensions and "tokenauth=true" in extensions:
            raise refused(self._mechanism, self._claimed, "delegation tokens are not supported")
        authorization = _AUTHORIZATION.fullmatch(self._gs2_header)
        if authorization is not None and _unescaped(authorization[1]) not in ("", self._claimed):
            raise refused(self._mechanism, self._claimed, "it asks to act as another user")
        self._name = parse_login_name(self._claimed)
        self._verifier, self._is_there = self._find(self._name, self._claimed)
        self._nonce = client_nonce + self._server_nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._proved = f"{bare}{extensions or ''},{challenge}"
        return SaslStep(challenge.encode())

    def _final(self, text: str, verifier: Verifier) -> SaslStep:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise refused(self._mechanism, self._claimed, "the last message cannot be read")
        without_proof, binding, nonce, proof = found.groups()
        proved = f"{self._proved},{without_proof}".encode()
        is_proof = self._is_proof(verifier, proved, _decoded(proof))
        if not is_proof or not self._is_there or self._name is None:
            why = "wrong password" if self._is_there else "no such user"
            raise refused(self._mechanism, self._claimed, why)
        # As Kafka compares it: librdkafka before 2.2 puts its own nonce in front of the two once more.
        if not nonce.endswith(self._nonce) or _decoded(binding) != self._gs2_header.encode():
            raise refused(self._mechanism, self._claimed, "the last message does not belong to the first")
        signature = hmac.digest(verifier.server_key, proved, self._algorithm)
        return SaslStep(b"v=" + base64.b64encode(signature), self._name)

    def _is_proof(self, verifier: Verifier, proved: bytes, proof: bytes) -> bool:
        signature = hmac.digest(verifier.stored_key, proved, self._algorithm)
        if len(proof) != len(signature):
            return False
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=True))
        return hmac.compare_digest(hashlib.new(self._algorithm, client_key).digest(), verifier.stored_key)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
