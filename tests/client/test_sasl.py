"""SASL as the client speaks it, against the examples of the RFCs; `make interop` has Apache Kafka for the rest."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from headrace.client.sasl import Sasl, SaslRefused, authenticate

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SCRAM = Sasl("SCRAM-SHA-256", "user", "pencil")


class Broker:
    """Answers as it is told, and keeps what it was sent."""

    def __init__(self, tokens: Sequence[bytes], refusal: bytes | None = None) -> None:
        self._tokens, self._refusal = list(tokens), refusal
        self.sent: list[bytes] = []

    def __call__(self, api_key: int, version: int, body: bytes) -> bytes:
        if (api_key, version) == (17, 1):
            self.sent.append(body[2:])
            return struct.pack(">hi", 0, 0)
        assert (api_key, version) == (36, 0)
        self.sent.append(body[4:])
        if self._refusal is not None:
            return struct.pack(">hh", 58, len(self._refusal)) + self._refusal + struct.pack(">i", 0)
        token = self._tokens.pop(0)
        return struct.pack(">hhi", 0, -1, len(token)) + token


@pytest.fixture(autouse=True)
def nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.client.sasl.secrets.token_urlsafe", lambda size: CLIENT_NONCE)


def test_plain_is_one_token() -> None:
    broker = Broker([b""])
    authenticate(broker, Sasl("PLAIN", "tim", "tanstaaf"))
    assert broker.sent == [b"PLAIN", b"\0tim\0tanstaaf"]


def test_scram_as_in_rfc_7677() -> None:
    broker = Broker([CHALLENGE, VERDICT])
    authenticate(broker, SCRAM)
    assert broker.sent == [b"SCRAM-SHA-256", b"n,,n=user,r=" + CLIENT_NONCE.encode(), PROOF]


def test_a_user_name_is_escaped() -> None:
    broker = Broker([], b"no")
    with pytest.raises(SaslRefused, match="The broker refuses this user: no"):
        authenticate(broker, Sasl("SCRAM-SHA-512", "a=b,c", "x"))
    assert broker.sent[1].startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([CHALLENGE, VERDICT.replace(b"6", b"7")], "it is not the one that it should be"),
        ([CHALLENGE, b"e=other-error"], "it is not the one that it should be"),
        ([CHALLENGE.replace(b"i=4096", b"i=1")], "not for us"),
        ([CHALLENGE.replace(b"i=4096", b"i=99999999")], "not for us"),
        ([CHALLENGE.replace(b"r=r", b"r=x")], "not for us"),
        ([b"\xff"], "not one of SASL"),
        ([b"hello"], "not one of SASL"),
    ],
)
def test_a_broker_that_cannot_prove_itself_is_refused(tokens: list[bytes], why: str) -> None:
    with pytest.raises(SaslRefused, match=why):
        authenticate(Broker(tokens), SCRAM)
