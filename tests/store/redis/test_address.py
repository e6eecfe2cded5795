"""Addresses as users write them, and names that never repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.cluster.identity import ProducerIds, from_kafka_uuid, kafka_uuid, new_id, ulid
from headrace.store.redis.address import Address, HostPort, parse_address
from tests.certificates import Authority


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", Address(host="localhost")),
        ("redis://", Address(host="127.0.0.1")),
        ("redis://h:7000/3", Address(host="h", port=7000, database=3)),
        ("redis://:p%40ss@h", Address(host="h", password="p@ss")),
        ("redis://user:pass@h:1", Address(host="h", port=1, username="user", password="pass")),
        ("rediss://h", Address(host="h", tls=True)),
        ("rediss://h?ssl_cert_reqs=none", Address(host="h", tls=True, verify=False)),
        ("rediss://h?ssl_ca_certs=/ca.pem", Address(host="h", tls=True, ca_file="/ca.pem")),
        (
            "rediss://h?ssl_certfile=/c.pem&ssl_keyfile=/k.pem",
            Address(host="h", tls=True, certificate_file="/c.pem", key_file="/k.pem"),
        ),
        ("redis://[::1]:7000", Address(host="::1", port=7000)),
        ("redis://[fe80::1%25eth0]", Address(host="fe80::1%eth0")),
        ("redis://:p[w]@[::1]:7000", Address(host="::1", port=7000, password="p[w]")),
        ("unix:///run/redis.sock", Address(path="/run/redis.sock")),
        ("unix:///run/redis.sock?db=2&password=secret", Address(path="/run/redis.sock", database=2, password="secret")),
        ("redis://h?username=50%2525&password=50%2525", Address(host="h", username="50%25", password="50%25")),
        ("unix://:secret@/run/redis.sock", Address(path="/run/redis.sock", password="secret")),
        (
            "redis+cluster://user:p%2Cw@a:7000,b,[::1]:7001",
            Address(
                form="cluster",
                username="user",
                password="p,w",
                seeds=(HostPort("a", 7000), HostPort("b", 6379), HostPort("::1", 7001)),
            ),
        ),
        ("rediss+cluster://a", Address(form="cluster", tls=True, seeds=(HostPort("a", 6379),))),
        (
            "redis+sentinel://:pw@s1,s2:5000/main/2?sentinel_password=other",
            Address(
                form="sentinel",
                password="pw",
                database=2,
                seeds=(HostPort("s1", 26379), HostPort("s2", 5000)),
                primary_name="main",
                sentinel_password="other",
            ),
        ),
        (
            "rediss+sentinel://mill:pw@s1/main?ssl_ca_certs=/ca.pem&sentinel_username=miller&sentinel_password=o%26r",
            Address(
                form="sentinel",
                tls=True,
                ca_file="/ca.pem",
                username="mill",
                password="pw",
                seeds=(HostPort("s1", 26379),),
                primary_name="main",
                sentinel_username="miller",
                sentinel_password="o&r",
            ),
        ),
    ],
)
def test_urls_are_read_as_the_common_clients_read_them(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:6379", "redis://"),
        ("http://h", "redis://"),
        ("unix://", "socket"),
        ("redis://h:99999", "port"),
        ("redis://h/first", "database"),
        ("redis://a,b", "several hosts"),
        ("redis+sentinel://a,b", "does not name the primary"),
        ("redis+cluster://", "no host"),
        ("redis+cluster://a/3", "a cluster has only database 0"),
        ("redis+ring://a", r"does not start with redis://.*redis\+cluster://"),
        ("redis://::1:6379", "needs brackets"),
        ("redis://[::1", "brackets"),
        ("redis://h:0", "port"),
        ("redis://h/²", "database"),
        ("redis://user:se@cret/x@h:6379", "special characters in its password"),
        ("redis://user:se#cret@h:6379", "special characters in its password"),
        ("redis://user:se?cret@h:6379", "special characters in its password"),
        ("redis://user:6379?cret=x@h:6379", "special characters in its password"),
        ("redis://h?databse=3", "unknown option 'databse': there are db, "),
        ("unix:///run/s?databse=3", "unknown option 'databse'"),
        ("rediss://h?ssl_cert_reqs=optional", "ssl_cert_reqs=optional: write required or none"),
    ],
)
def test_a_wrong_url_is_explained_without_its_password(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        parse_address(url)
    assert "cret" not in str(error.value)


def test_a_password_is_never_shown() -> None:
    assert str(parse_address("redis://user:secret@h:7000/3")) == "redis://h:7000/3"
    assert str(parse_address("unix://:secret@/run/s")) == "unix:///run/s"
    assert str(parse_address("rediss://:secret@h")) == "rediss://h:6379"
    assert str(parse_address("rediss+cluster://u:secret@a,b:7000")) == "rediss+cluster://a:6379,b:7000"
    assert str(parse_address("redis+sentinel://:secret@a/main/1")) == "redis+sentinel://a:26379/main/1"


def test_ids_sort_by_time_and_keep_their_bits_in_both_spellings() -> None:
    older, newer = new_id(1000), new_id(1001)
    assert older < newer
    assert ulid(older) < ulid(newer)
    assert len(ulid(older)) == 26
    assert from_kafka_uuid(kafka_uuid(older)) == older
    assert len(kafka_uuid(older)) == 22


def test_producer_ids_fit_63_bits_and_do_not_repeat_within_a_millisecond_or_when_the_clock_is_set_back() -> None:
    producer_ids = ProducerIds()
    ids = [producer_ids.new(now_ms) for now_ms in (1_700_000_000_000, 1_600_000_000_000) for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert all(0 <= found < 1 << 63 for found in ids)


def test_producer_ids_of_two_brokers_in_the_same_millisecond_differ_by_chance() -> None:
    assert len({ProducerIds().new(1_700_000_000_000) for _ in range(10)}) > 1


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    file = tmp_path / "own.pem"
    file.write_text("not a certificate")
    with pytest.raises(OSError, match=r"own\.pem has no certificates"):
        Address(host="h", tls=True, ca_file=str(file)).tls_context()
    with pytest.raises(OSError, match=r"own\.pem cannot be used as a certificate and its key"):
        Address(host="h", tls=True, certificate_file=str(file)).tls_context()


def test_half_a_certificate_of_ours_is_named(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).sign("client")
    with pytest.raises(OSError, match=r"client\.cert\.pem cannot be used .* \(no key in it: add ssl_keyfile=FILE\)"):
        Address(host="h", tls=True, certificate_file=str(certificate)).tls_context()
    with pytest.raises(OSError, match=r"client\.key\.pem is a key without a certificate: add ssl_certfile=FILE"):
        Address(host="h", tls=True, key_file=str(key)).tls_context()


@pytest.mark.parametrize("field", ["ca_file", "certificate_file", "key_file"])
def test_a_file_of_tls_that_is_missing_is_named(field: str, tmp_path: Path) -> None:
    address = Address(host="h", tls=True, **{field: str(tmp_path / "missing.pem")})  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        address.tls_context()
