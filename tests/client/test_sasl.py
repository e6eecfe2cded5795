"""SASL as the client speaks it, against the examples of the RFCs; `make interop` has Apache Kafka for the rest."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

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
        self.lifetime_ms = 0

    def __call__(self, api_key: int, version: int, body: bytes) -> bytes:
        if (api_key, version) == (17, 1):
            self.sent.append(body[2:])
            return struct.pack(">hi", 0, 0)
        assert (api_key, version) == (36, 1)
        self.sent.append(body[4:])
        if self._refusal is not None:
            return struct.pack(">hh", 58, len(self._refusal)) + self._refusal + struct.pack(">iq", 0, 0)
        token = self._tokens.pop(0)
        return struct.pack(">hhi", 0, -1, len(token)) + token + struct.pack(">q", self.lifetime_ms)


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
    with pytest.raises(SaslRefused, match="The broker rejected this user: no"):
        authenticate(broker, Sasl("SCRAM-SHA-512", "a=b,c", "x"))
    assert broker.sent[1].startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([CHALLENGE, VERDICT.replace(b"6", b"7")], "it may not be the broker you mean"),
        ([CHALLENGE, b"e=other-error"], "it may not be the broker you mean"),
        ([CHALLENGE.replace(b"i=4096", b"i=1")], "does not match our request"),
        ([CHALLENGE.replace(b"i=4096", b"i=99999999")], "does not match our request"),
        ([CHALLENGE.replace(b"r=r", b"r=x")], "does not match our request"),
        ([b"\xff"], "not a SASL response"),
        ([b"hello"], "not a SASL response"),
    ],
)
def test_a_broker_that_cannot_prove_itself_is_refused(tokens: list[bytes], why: str) -> None:
    with pytest.raises(SaslRefused, match=why):
        authenticate(Broker(tokens), SCRAM)


def test_a_token_is_read_from_its_file_at_each_login(tmp_path: Path) -> None:
    broker, file = Broker([b"", b""]), tmp_path / "token"
    broker.lifetime_ms = 60_000
    for token in ("a.b.c", "d.e.f"):
        file.write_text(f"{token}\n")
        assert authenticate(broker, Sasl("OAUTHBEARER", token_file=str(file))) == 60
    assert broker.sent[1::2] == [b"n,,\x01auth=Bearer a.b.c\x01\x01", b"n,,\x01auth=Bearer d.e.f\x01\x01"]


def test_a_bad_token_is_acknowledged_before_the_refusal(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a.b.c")
    broker = Broker([b'{"status":"invalid_token"}', b""])
    with pytest.raises(SaslRefused, match="rejected this token"):
        authenticate(broker, Sasl("OAUTHBEARER", token_file=str(file)))
    assert broker.sent[-1] == b"\x01"
