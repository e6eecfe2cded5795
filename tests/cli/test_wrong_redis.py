"""A --redis that names the wrong kind of server: `serve` says in one sentence what to write, and `doctor` agrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store.embedded.ports import HOST
from headrace.store.embedded.trial import TrialServer
from headrace.store.redis.topology import slot_number
from tests.broker_process import wait_until
from tests.cli.conftest import run_command, run_process
from tests.sentinels import SENTINEL

Servers = dict[str, TrialServer]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    primary, replica = (TrialServer(folder / name, {"save": ""}) for name in ("primary", "replica"))
    sentinel = TrialServer(folder / "sentinel", {}, *SENTINEL)
    try:
        for server in (primary, replica):
            server.start()
        replica.ask("REPLICAOF", HOST, primary.port)
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica does not follow", 30)
        (sentinel.folder / SENTINEL[0]).write_text(f"sentinel monitor main {HOST} {primary.port} 1\n")
        sentinel.start()
        yield {"primary": primary, "replica": replica, "sentinel": sentinel}
    finally:
        for server in (sentinel, replica, primary):
            server.kill()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://{replica}", "the server is a replica of {primary}; name the primary with --redis"),
        ("redis://{sentinel}", "is a sentinel; start with --redis redis+sentinel://{sentinel}/NAME"),
        ("redis+sentinel://{sentinel}/other", "the sentinels know no primary 'other'; correct the name in --redis"),
        ("redis+sentinel://{primary}/main", "{primary} is not a sentinel"),
        ("redis+cluster://{primary}", "is not part of a cluster; start with --redis redis://{primary}"),
        ("redis+cluster://{sentinel}", "is not part of a cluster; start with --redis redis+sentinel://{sentinel}/NAME"),
    ],
)
def test_the_wrong_kind_of_server_is_one_sentence_that_says_what_to_write(
    url: str, words: str, servers: Servers, tmp_path: Path
) -> None:
    url, words = url.format(**servers), words.format(**servers)
    assert words in run_process("serve", "--port", 0, "--redis", url).sentence()
    ran = run_command("doctor", "--port", 0, "--redis", url, "--data-dir", tmp_path, "--json")
    found = next(row for row in ran.json if row["check"] == "redis")
    assert (ran.code, found["level"]) == (1, "fail")
    assert words in f"{found['found']}; {found['advice']}"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("maxmemory", "1mb", "rejects writes: OOM"),
        ("min-replicas-to-write", "2", "rejects writes: NOREPLICAS"),
    ],
)
def test_a_server_that_takes_no_writes_is_not_taken_for_a_wrong_login(
    option: str, value: str, words: str, servers: Servers, tmp_path: Path
) -> None:
    primary = servers["primary"]
    before = primary.ask("CONFIG", "GET", option)[1]
    primary.ask("CONFIG", "SET", option, value)
    try:
        said = run_process("serve", "--port", 0, "--redis", f"redis://{primary}").err.splitlines()[-1]
        ran = run_command("doctor", "--port", 0, "--redis", f"redis://{primary}", "--data-dir", tmp_path, "--json")
    finally:
        primary.ask("CONFIG", "SET", option, before)
    assert said.startswith(f"Error: redis://{primary} {words}")
    assert option in said
    found = next(row for row in ran.json if row["check"] == "redis writes")
    assert (ran.code, found["level"]) == (1, "fail")
    assert f"Error: {found['found']}; {found['advice']}" == said


def test_the_doctor_heeds_the_settings_that_let_a_broker_start(servers: Servers, tmp_path: Path) -> None:
    primary = servers["primary"]
    primary.ask("ACL", "SETUSER", "mill", "reset", "on", "nopass", "~*", "&*", "+@all", "-wait")
    primary.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    line = ["doctor", "--port", 0, "--redis", f"redis://mill@{primary}", "--data-dir", tmp_path, "--json"]
    try:
        strict, lenient = (run_command(*line, *more) for more in ([], ["--store-replicas", 0, "--allow-eviction"]))
    finally:
        primary.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert (strict.code, lenient.code) == (1, 0)
    assert {row["check"] for row in strict.json if row["level"] == "fail"} == {"redis permissions"}
    levels = {row["check"]: row["level"] for row in lenient.json}
    assert (levels["redis permissions"], levels["redis memory"]) == ("warn", "warn")


def test_the_doctor_logs_nothing_beside_its_findings(servers: Servers, tmp_path: Path) -> None:
    url = f"rediss+sentinel://{servers['sentinel']}/main"
    ran = run_process("doctor", "--port", 0, "--redis", url, "--data-dir", tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert "no TLS handshake" in ran.out


def test_a_user_without_a_password_is_the_one_who_logs_in(servers: Servers) -> None:
    servers["primary"].ask("ACL", "SETUSER", "miller", "reset", "on", "nopass", "~*", "&*", "+@all", "-xadd")
    said = run_process("serve", "--port", 0, "--redis", f"redis://miller@{servers['primary']}").sentence()
    assert "does not allow XADD on headrace:*" in said


def test_a_certificate_file_that_cannot_be_used_is_not_taken_for_a_port_without_tls(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("not a certificate")
    said = run_process("serve", "--port", 0, "--redis", f"rediss://127.0.0.1:1?ssl_ca_certs={file}").sentence()
    assert f"{file} has no certificates" in said
    assert said.endswith("; correct the ssl_ files in --redis")
    file.unlink()
    said = run_process("serve", "--port", 0, "--redis", f"rediss://127.0.0.1:1?ssl_ca_certs={file}").sentence()
    assert said.endswith(f"No such file or directory: {file}; correct the ssl_ files in --redis")


def test_slots_without_a_server_are_named(tmp_path: Path) -> None:
    options = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    server = TrialServer(tmp_path / "half", options)
    options["cluster-port"] = str(server.bus_port)
    server.start()
    try:
        server.ask("CLUSTER", "ADDSLOTSRANGE", 0, slot_number("{nodes}") - 1)
        wait_until(lambda: b"cluster_state:ok" in server.ask("CLUSTER", "INFO"), "the cluster does not work", 30)
        url = f"redis+cluster://{server}"
        said = run_process("serve", "--port", 0, "--redis", url).err.splitlines()
        ran = run_command("doctor", "--port", 0, "--redis", url, "--data-dir", tmp_path, "--json")
    finally:
        server.kill()
    assert "a slot of the cluster has no server; assign all slots" in said[-1]
    assert sum("the store is slow" in line for line in said) <= 1
    assert any("slots have no server" in row["found"] for row in ran.json if row["level"] == "fail")
    assert ran.code == 1
