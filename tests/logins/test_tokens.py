"""Tokens: what makes one good, where keys come from, and what of a token is never believed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from headrace.broker.logins.options import LoginOptions
from headrace.broker.logins.token_errors import BadToken, NoKeys
from headrace.broker.logins.tokens import KeySet, check_token, key_id_of, read_keys
from tests.certificates import Authority
from tests.logins.secured import AUDIENCE, ISSUER, TokenSigner

OPTIONS = LoginOptions(oauth_issuer=ISSUER, oauth_audience=AUDIENCE, oauth_clock_skew_ms=5_000)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> TokenSigner:
    return TokenSigner(tmp_path_factory.mktemp("signer"))


def checked(signer: TokenSigner, token: str, options: LoginOptions = OPTIONS) -> tuple[str, str]:
    key = read_keys(str(signer.jwks_file)).get(key_id_of(token))
    if key is None:
        raise BadToken("no key")
    claims = check_token(token, key, options)
    return claims.organisation, claims.user


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_good_token_names_its_user(signer: TokenSigner, algorithm: str) -> None:
    assert checked(signer, signer.token("ann", algorithm=algorithm)) == ("", "ann")
    assert checked(signer, signer.token("ann", lifetime_s=-2)) == ("", "ann"), "clocks may be off a little"


def test_claims_say_who_it_is_and_of_which_organisation(signer: TokenSigner) -> None:
    options = LoginOptions(oauth_principal_claim="name", oauth_organisation_claim="org", oauth_scope="kafka read")
    token = signer.token("x", name="ann", org="acme", scope="read kafka more")
    assert checked(signer, token, options) == ("acme", "ann")
    assert checked(signer, signer.token("x", name="ann", org="acme", scp=["kafka", "read"]), options) == ("acme", "ann")
    for bad in (signer.token("x", name="ann", org="acme", scope="read"), signer.token("x", name="ann", scope="kafka")):
        with pytest.raises(BadToken):
            checked(signer, bad, options)


@pytest.mark.parametrize(
    ("lifetime_s", "claims"),
    [(-60, {}), (300, {"iss": "https://other"}), (300, {"aud": "other"}), (300, {"sub": ""}), (300, {"sub": 7})],
)
def test_a_token_for_another_time_place_or_purpose_is_bad(
    signer: TokenSigner, lifetime_s: float, claims: dict[str, Any]
) -> None:
    with pytest.raises(BadToken):
        checked(signer, signer.token("ann", lifetime_s=lifetime_s, **claims))


def test_a_token_that_is_not_valid_yet_is_bad(signer: TokenSigner) -> None:
    with pytest.raises(BadToken):
        checked(signer, signer.token("ann", lifetime_s=900, nbf=time.time() + 600))


def forged(signer: TokenSigner, header: dict[str, Any], signature: bytes = b"") -> str:
    body = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 300}
    parts = [json.dumps(header).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_nothing_that_a_token_says_makes_it_good(signer: TokenSigner) -> None:
    mine = rsa.generate_private_key(65537, 2048)
    public = (
        signer.keys["RS256"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 300}
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(mine.public_key(), as_dict=True)
    own = {"kid": "RS256", "jwk": jwk, "jku": "https://evil.example.com/keys", "x5u": "https://evil.example.com/cert"}
    shared = forged(signer, {"alg": "HS256", "kid": "RS256"}).rsplit(".", 1)[0]
    mac = base64.urlsafe_b64encode(hmac.digest(public, shared.encode(), hashlib.sha256)).rstrip(b"=").decode()
    for token in (
        jwt.encode(claims, mine, "RS256", headers=own),
        f"{shared}.{mac}",
        forged(signer, {"alg": "none", "kid": "RS256"}),
        forged(signer, {"alg": "None", "kid": "RS256"}),
        forged(signer, {"alg": "RS256", "kid": "unknown"}),
        "a.b.c",
        "",
    ):
        with pytest.raises(BadToken):
            checked(signer, token)


class KeyServer(http.server.BaseHTTPRequestHandler):
    """Serves what it is told to, and counts."""

    content = b""
    status = 200
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.sign("keys"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), KeyServer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    yield f"https://127.0.0.1:{server.server_address[1]}/keys"
    server.shutdown()
    server.server_close()
    thread.join()


async def test_keys_over_https_are_looked_for_again_and_old_ones_stay(signer: TokenSigner, address: str) -> None:
    now_s = 0.0
    rows = json.loads(signer.jwks_file.read_text())["keys"]
    KeyServer.content, KeyServer.status, KeyServer.asked = json.dumps({"keys": rows[:1]}).encode(), 200, 0
    keys = KeySet(address, lambda: now_s)
    await keys.start()
    assert await keys.find("RS256") is not None
    assert await keys.find(None) is not None, "there is only one"
    KeyServer.content = json.dumps({"keys": rows}).encode()
    assert (await keys.find("ES256"), KeyServer.asked) == (None, 1), "not at every token"
    now_s = 30.0
    assert await keys.find("ES256") is not None
    assert await keys.find(None) is None, "there are two"
    assert KeyServer.asked == 2
    KeyServer.status = 302
    now_s = 60.0
    assert (await keys.find("another"), KeyServer.asked) == (None, 3), "a redirect is not followed"
    assert await keys.find("RS256") is not None
    keys.close()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', b" " * (1 << 20) + b"{}"]
)
def test_what_has_no_keys_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "jwks").write_bytes(content)
    with pytest.raises(NoKeys, match="jwks"):
        read_keys(str(tmp_path / "jwks"))
    with pytest.raises(NoKeys, match="No such file"):
        read_keys(str(tmp_path / "none"))
