"""Listeners as they are written, and what is refused of them."""

from __future__ import annotations

import pytest

from headrace.cli.serve.tls import check_listeners
from headrace.cli.settings.layers import SettingsError, listeners_of, load
from headrace.security.listeners import Listener, ListenerError, parse_listener

FULL = (
    "public=SASL_SSL://0.0.0.0:9093,advertised=kafka.example.com:9094,client-auth=requested,"
    "proxy-from=10.0.0.0/8,fd00::/8,mechanisms=SCRAM-SHA-512,PLAIN"
)


def test_a_listener_with_everything_is_read_and_written_the_same() -> None:
    found = parse_listener(FULL)
    assert found == Listener(
        name="public",
        protocol="SASL_SSL",
        host="0.0.0.0",
        port=9093,
        advertised=("kafka.example.com", 9094),
        client_auth="requested",
        proxy_from=("10.0.0.0/8", "fd00::/8"),
        mechanisms=("SCRAM-SHA-512", "PLAIN"),
    )
    assert str(found) == FULL
    assert str(parse_listener("a=ssl://[::1]:0")) == "a=SSL://[::1]:0"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SASL_SSL://h:1", "is not NAME=PROTOCOL://HOST:PORT"),
        ("a=TLS://h:1", "the protocol 'TLS' is not one of PLAINTEXT, SSL"),
        ("a=SSL://h:99999", "port 99999 is above 65535"),
        ("a=SSL://h:1,advertised=x", "advertised=x is not HOST:PORT"),
        ("a=SSL://h:1,advertised=x:1,y:2", "advertised has one value"),
        ("a=SSL://h:1,what=x", "the option 'what' is not one of advertised"),
        ("a=SSL://h:1,client-auth=none,client-auth=none", "is given twice"),
        ("a=SSL://h:1,client-auth=maybe", "client-auth=maybe is not one of none, requested, required"),
        ("a=SSL://h:1,10.0.0.0/8", "is not an option such as"),
        ("a=SSL://h:1,proxy-from=here", "is not a network"),
        ("a=SASL_SSL://h:1,mechanisms=GSSAPI", "the mechanism 'GSSAPI' is not one of"),
        ("a=SSL://h:1,mechanisms=PLAIN", "mechanisms needs SASL_SSL"),
        ("a=SASL_PLAINTEXT://h:1,client-auth=required", "client-auth needs SSL"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ListenerError, match=sentence) as refused:
        parse_listener(text)
    assert "\n" not in str(refused.value)


def test_without_tls_no_secret_is_asked_for_unless_it_is_named() -> None:
    assert parse_listener("a=SASL_SSL://h:1").offered(True) == (
        "SCRAM-SHA-512",
        "SCRAM-SHA-256",
        "PLAIN",
        "OAUTHBEARER",
    )
    assert parse_listener("a=SASL_SSL://h:1").offered(False) == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    assert parse_listener("a=SASL_PLAINTEXT://h:1").offered(True) == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    assert parse_listener("a=SASL_PLAINTEXT://h:1,mechanisms=plain").offered(True) == ("PLAIN",)


def names(**flags: object) -> list[str]:
    return [str(listener) for listener in listeners_of(load(None, {}, flags).settings)]


def test_named_listeners_stand_alone_unless_an_address_is_set_too() -> None:
    tls = "tls=SSL://127.0.0.1:9093"
    assert names() == ["default=PLAINTEXT://127.0.0.1:9092"]
    assert names(listen=(tls,)) == [tls]
    assert names(listen=(tls,), port=9192) == ["default=PLAINTEXT://127.0.0.1:9192", tls]
    own = "default=SSL://127.0.0.1:9095"
    assert names(listen=(tls, own), port=9192) == [own, tls]


def test_listeners_come_from_the_environment_too_and_a_name_is_used_once() -> None:
    found = load(None, {"HEADRACE_LISTEN": "a=SSL://h:1,advertised=x:2 b=SSL://h:2"}, {})
    assert [listener.name for listener in listeners_of(found.settings)] == ["a", "b"]
    with pytest.raises(SettingsError, match="a name of their own"):
        load(None, {"HEADRACE_LISTEN": "a=SSL://h:1 a=SSL://h:2"}, {})
    with pytest.raises(SettingsError, match="the protocol 'X' is not one of"):
        load(None, {}, {"listen": ("a=X://h:1",)})


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"listen": ("a=PLAINTEXT://10.0.0.5:1",)}, "listener a would serve PLAINTEXT on 10.0.0.5:1"),
        ({"listen": ("a=SASL_PLAINTEXT://10.0.0.5:1",)}, "listener a would serve SASL_PLAINTEXT on 10.0.0.5:1"),
        ({"host": "0.0.0.0", "advertised": "h:1"}, "--host 0.0.0.0 would serve PLAINTEXT on 0.0.0.0:9092"),
        ({"listen": ("a=PLAINTEXT://10.0.0.5:1",), "allow_plaintext": True}, ""),
        ({"listen": ("a=PLAINTEXT://127.0.0.5:1", "b=SASL_PLAINTEXT://[::1]:2")}, ""),
        ({"listen": ("a=SSL://0.0.0.0:1",), "tls_cert": "c"}, "add advertised=HOST:PORT to it"),
        ({"listen": ("a=SSL://10.0.0.5:1",)}, "needs a certificate: add --tls-cert"),
        ({"listen": ("a=SSL://10.0.0.5:1,client-auth=required",), "tls_cert": "c"}, "add --tls-ca FILE"),
        ({"listen": ("a=SASL_SSL://10.0.0.5:1,mechanisms=OAUTHBEARER",), "tls_cert": "c"}, "add --oauth-jwks"),
        ({"oauth_jwks": "http://keys.example.com"}, "use https:// or a file"),
        ({"tls_principal_rules": "RULE:x"}, "is not RULE:pattern/replacement/"),
    ],
)
def test_what_is_not_safe_or_cannot_work_is_one_sentence(flags: dict[str, object], sentence: str) -> None:
    said = check_listeners(load(None, {}, flags).settings)
    assert sentence in said
    assert bool(said) == bool(sentence)
