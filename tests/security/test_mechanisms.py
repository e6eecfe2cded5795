"""The mechanisms as the server speaks them: the RFCs' examples, and messages that are none."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.sasl import Sasl, _scram
from headrace.security.mechanisms.exchange import Refused
from headrace.security.mechanisms.oauthbearer import read_bearer
from headrace.security.mechanisms.plain import read_plain
from headrace.security.mechanisms.scram import ScramServer
from headrace.security.names import LoginName
from headrace.security.verifiers import HASHES, Verifier, fake_verifier, new_verifier

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = {mechanism: new_verifier(mechanism, "pencil", SALT, 4096) for mechanism in HASHES}
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def server(mechanism: str = "SCRAM-SHA-256", nonce: str = SERVER_NONCE) -> ScramServer:
    def find(name: LoginName | None, written: str) -> tuple[Verifier, bool]:
        if name == LoginName("default", "user"):
            return PENCIL[mechanism], True
        return fake_verifier(b"secret", mechanism, written), False

    return ScramServer(mechanism, find, nonce)


def test_scram_as_in_rfc_7677() -> None:
    found = server()
    assert found.step(FIRST).message == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = found.step(FINAL)
    assert last.message == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.user == LoginName("default", "user")


@pytest.mark.parametrize(
    ("first", "final"),
    [
        (FIRST, FINAL.replace(b"p=d", b"p=e")),
        (FIRST, FINAL.replace(b"c=biws", b"c=eSws")),
        (FIRST, FINAL.replace(b"r=rO", b"r=xO")),
        (FIRST, FINAL.replace(b"AndVQ=", b"")),
        (FIRST, b"p=x"),
        (FIRST, b"\xff"),
        (FIRST.replace(b"user", b"nobody"), FINAL),
        (FIRST.replace(b"n,,", b"n,a=root,"), None),
        (FIRST.replace(b"n,,", b"p=tls-unique,,"), None),
        (FIRST + b",tokenauth=true", None),
        (FIRST.replace(b"n=user", b"m=x,n=user"), None),
        (b"n,,n=,r=x", None),
        (FIRST + bytes(10_000), None),
        (FIRST + b"x" * 10_000, None),
    ],
)
def test_what_does_not_prove_anything_is_refused(first: bytes, final: bytes | None) -> None:
    found = server()
    with pytest.raises(Refused) as refused:  # noqa: PT012
        found.step(first)
        if final is not None:
            found.step(final)
    assert str(refused.value).endswith("invalid credentials with SASL mechanism SCRAM-SHA-256")


def test_a_nonce_may_have_the_clients_part_twice() -> None:
    """librdkafka before 2.2 sends it so, as Debian's kcat does, and Kafka takes it."""
    found = server()
    challenge = found.step(FIRST).message.decode()
    without_proof = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{challenge.split(',')[0].removeprefix('r=')}"
    proved = f"{FIRST[3:].decode()},{challenge},{without_proof}".encode()
    client_key = hmac.digest(hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096), b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), proved, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    assert found.step(f"{without_proof},p={proof}".encode()).user == LoginName("default", "user")


@pytest.mark.parametrize("mechanism", list(HASHES))
@given(nonce=st.text("abcXYZ019+/~!", min_size=1, max_size=40))
def test_our_client_and_our_server_agree(mechanism: str, nonce: str) -> None:
    found = server(mechanism, nonce)
    users = []

    def exchange(api_key: int, version: int, body: bytes) -> bytes:
        step = found.step(body[4:])
        users.append(step.user)
        size = len(step.message)
        return b"\0\0\xff\xff" + size.to_bytes(4, "big") + step.message + bytes(8)

    _scram(exchange, Sasl(mechanism, "user", "pencil"))
    assert users == [None, LoginName("default", "user")]


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(message: bytes) -> None:
    for read in (read_plain, read_bearer, server().step):
        try:
            read(message)
        except Refused:
            continue


def test_plain_is_a_name_and_a_password() -> None:
    assert read_plain(b"\0tim\0tanstaaf") == ("tim", "tanstaaf")
    assert read_plain(b"tim\0tim\0a\xc3\xa4") == ("tim", "a\xe4")
    for wrong in (b"", b"tim", b"\0tim\0", b"\0\0x", b"ann\0tim\0x", b"\0a\0b\0c", b"\0\xff\0x"):
        with pytest.raises(Refused):
            read_plain(wrong)


def test_a_bearer_message_has_a_token_and_maybe_extensions() -> None:
    assert read_bearer(b"n,,\x01auth=Bearer a.b-c._\x01\x01") == ("a.b-c._", "")
    assert read_bearer(b"n,a=ann,\x01traceId=7\x01auth=bearer  t\x01\x01") == ("t", "ann")
    for wrong in (b"", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer a b\x01\x01", b"\x01"):
        with pytest.raises(Refused):
            read_bearer(wrong)
