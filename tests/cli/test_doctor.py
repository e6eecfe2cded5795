"""`headrace doctor`: each check says what it found and what to do, and a failure is in the exit code."""

from __future__ import annotations

import inspect
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
import redis

from headrace import store
from headrace.cli.doctor.machine import check_data_directory, check_java, check_open_files
from headrace.store.embedded.trial import TrialServer
from headrace.store.redis.probe import commands
from tests.broker_process import BrokerProcess, RedisProcess, free_port
from tests.cli.conftest import Ran, run_command, run_process
from tests.conftest import StartBroker, StartRedis


def findings(ran: Ran) -> dict[str, Any]:
    return {finding["check"]: finding for finding in ran.json}


def doctor(tmp_path: Path, *arguments: object) -> Ran:
    """A doctor of a machine on which nothing is in the way, but for what the arguments say."""
    defaults = {"--data-dir": tmp_path / "data", "--port": free_port()}
    given = [part for flag, value in defaults.items() if flag not in arguments for part in (flag, value)]
    return run_command("doctor", *given, *arguments)


def test_a_machine_that_can_serve_passes(tmp_path: Path) -> None:
    ran = doctor(tmp_path, "--json")
    found = findings(ran)
    assert ran.code == 0
    for check in ("python", "packages", "embedded valkey", "data directory", "memory"):
        assert found[check]["level"] == "ok", found[check]
    assert not (tmp_path / "data").exists()


def test_the_page_for_people_names_each_check_and_fits_the_width(tmp_path: Path) -> None:
    ran = doctor(tmp_path, "--data-dir", __file__)
    assert ran.code == 1
    lines = ran.out.splitlines()
    (failed,) = [at for at, line in enumerate(lines) if line.startswith("fail  data directory")]
    assert lines[failed + 1 :] != []
    assert any("-> choose another with --data-dir" in line for line in lines[failed:])
    assert "1 problem" in lines[-1]


def test_a_data_directory_is_looked_at_and_left_alone(tmp_path: Path, broker: BrokerProcess) -> None:
    assert check_data_directory(tmp_path).level == "ok"
    assert check_data_directory(broker.data_dir).level == "ok"
    in_use = check_data_directory(broker.data_dir).found
    assert f"pid {broker.pid}" in in_use
    assert redis.Redis.from_url(in_use.partition("its Valkey at ")[2].partition(";")[0]).ping()
    (tmp_path / "thesis.txt").touch()
    foreign = check_data_directory(tmp_path)
    assert foreign.level == "fail"
    assert "not headrace's" in foreign.found
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert check_data_directory(tmp_path / "thesis.txt" / "below").level == "fail"


def test_a_port_taken_by_something_else_fails_and_one_taken_by_a_broker_does_not(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ran = doctor(tmp_path, "--port", port, "--json")
    taken = findings(ran)[f"port {port}"]
    assert (ran.code, taken["level"]) == (1, "fail")
    assert f"pid {os.getpid()}" in taken["found"]
    assert f"PORT={port + 1}" in taken["advice"]
    found = findings(doctor(tmp_path, "--port", broker.port, "--json"))
    assert found[f"port {broker.port}"]["level"] == "ok"
    assert found["broker"]["level"] == "ok"


def test_a_broker_is_probed_with_a_topic_that_is_gone_afterwards(tmp_path: Path, broker: BrokerProcess) -> None:
    ran = doctor(tmp_path, "--bootstrap", broker.address, "--probe", "--json")
    found = findings(ran)
    assert ran.code == 0
    assert found["broker"]["found"].startswith("headrace, cluster ")
    assert found["broker APIs"]["level"] == "ok"
    assert "produced in" in found["round trip"]["found"]
    topics = run_command("topics", "list", "headrace-doctor-*", "--json", "--bootstrap", broker.address).json
    assert topics == []


def test_a_broker_that_is_not_there_fails(tmp_path: Path) -> None:
    ran = doctor(tmp_path, "--bootstrap", f"127.0.0.1:{free_port()}", "--json")
    assert (ran.code, findings(ran)["broker"]["level"]) == (1, "fail")
    assert "make run" in findings(ran)["broker"]["advice"]


@pytest.fixture
def server(start_redis: StartRedis) -> Iterator[tuple[RedisProcess, redis.Redis]]:
    process = start_redis()
    with redis.Redis(port=process.port) as client:
        yield process, client


def tell(client: redis.Redis, *words: str) -> None:
    client.execute_command(*words)  # type: ignore[no-untyped-call]


def test_a_redis_of_ones_own_is_looked_at(tmp_path: Path, server: tuple[RedisProcess, redis.Redis]) -> None:
    process, client = server
    client.config_set("maxmemory", "256mb")
    ran = doctor(tmp_path, "--redis", process.url, "--json")
    found = findings(ran)
    assert ran.code == 0
    for check in ("redis", "redis memory", "redis persistence", "redis permissions"):
        assert found[check]["level"] == "ok", found[check]
    assert "fsync always" in found["redis persistence"]["found"]
    assert client.dbsize() == 0

    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("appendonly", "no")
    ran = doctor(tmp_path, "--redis", process.url, "--json")
    assert (ran.code, findings(ran)["redis memory"]["level"]) == (1, "fail")
    assert findings(ran)["redis persistence"]["level"] == "warn"

    client.config_set("maxmemory", "0")  # `serve` refuses it all the same
    ran = doctor(tmp_path, "--redis", process.url, "--json")
    assert (ran.code, findings(ran)["redis memory"]["level"]) == (1, "fail")


def test_one_server_of_a_cluster_is_refused_as_serve_does_it(tmp_path: Path) -> None:
    server = TrialServer(tmp_path / "server", {"cluster-enabled": "yes"})
    server._options["cluster-port"] = str(server.bus_port)
    try:
        server.start()
        ran = doctor(tmp_path, "--redis", f"redis://{server}", "--json")
    finally:
        server.stop()
    assert (ran.code, findings(ran)["redis"]["level"]) == (1, "fail")
    assert f"redis+cluster://{server}" in findings(ran)["redis"]["found"]


def test_an_embedded_server_that_was_set_to_evict_is_seen(broker: BrokerProcess, tmp_path: Path) -> None:
    found = check_data_directory(broker.data_dir).found
    with redis.Redis.from_url(found.partition("its Valkey at ")[2].partition(";")[0]) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            ran = doctor(tmp_path, "--data-dir", broker.data_dir, "--json")
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert (ran.code, findings(ran)["redis memory"]["level"]) == (1, "fail")
    assert findings(doctor(tmp_path, "--data-dir", broker.data_dir, "--json"))["redis memory"]["level"] == "ok"


def test_permissions_that_are_missing_are_named(tmp_path: Path, server: tuple[RedisProcess, redis.Redis]) -> None:
    process, client = server
    tell(client, "ACL", "SETUSER", "mill", "on", ">secret", "~headrace:*", "&headrace:*", "+@all", "-xadd", "-evalsha")
    url = f"redis://mill:secret@127.0.0.1:{process.port}"
    denied = findings(doctor(tmp_path, "--redis", url, "--json"))["redis permissions"]
    assert (denied["level"], "XADD, EVALSHA" in denied["found"]) == ("fail", True)
    elsewhere = findings(doctor(tmp_path, "--redis", url, "--key-prefix", "other", "--json"))["redis permissions"]
    assert elsewhere["level"] == "fail"
    wrong = findings(doctor(tmp_path, "--redis", url.replace("secret", "guess"), "--json"))["redis"]
    assert wrong["level"] == "fail"
    assert "WRONGPASS" in wrong["found"]
    assert "redis://USER:PASSWORD@" in wrong["advice"]
    assert "guess" not in str(wrong)


@pytest.mark.parametrize(
    ("denied", "level"),
    [
        ("wait", "fail"),
        ("subscribe", "fail"),
        ("multi", "fail"),
        ("exec", "fail"),
        ("xsetid", "fail"),
        ("client", "warn"),
    ],
)
def test_serve_and_doctor_agree_on_a_command_that_is_missing(
    denied: str, level: str, tmp_path: Path, server: tuple[RedisProcess, redis.Redis], start_broker: StartBroker
) -> None:
    process, client = server
    tell(client, "ACL", "SETUSER", "mill", "on", ">secret", "~headrace:*", "&headrace:*", "+@all", f"-{denied}")
    url = f"redis://mill:secret@127.0.0.1:{process.port}"
    found = findings(doctor(tmp_path, "--redis", url, "--json"))["redis permissions"]
    assert (found["level"], f"may not {denied.upper()} on headrace:*" in found["found"]) == (level, True), found
    if level == "warn":
        start_broker(redis=url)
    else:
        assert f"does not allow {denied.upper()} on" in run_process("serve", "--port", 0, "--redis", url).sentence()
    if denied == "wait":
        start_broker(redis=url, store_replicas=0)


def test_the_advice_for_permissions_is_enough(tmp_path: Path, server: tuple[RedisProcess, redis.Redis]) -> None:
    process, client = server
    tell(client, "ACL", "SETUSER", "mill", "on", ">secret", "+info")
    url = f"redis://mill:secret@127.0.0.1:{process.port}"
    denied = findings(doctor(tmp_path, "--redis", url, "--json"))["redis permissions"]
    tell(client, *denied["advice"].split())
    assert findings(doctor(tmp_path, "--redis", url, "--json"))["redis permissions"]["level"] == "ok"


OF_OTHER_FORMS = {"CLUSTER", "ASKING", "SENTINEL"}
"""Sent where a URL says that there is a cluster, or sentinels."""


def test_every_command_that_the_store_sends_is_tried() -> None:
    tried = {command[0] for command in commands("headrace")}
    sent = set()
    for path in Path(inspect.getfile(store)).parent.rglob("*.py"):
        if path.parent.name != "embedded":
            sent |= set(
                re.findall(r"""(?:redis\.p?call|call|send|post|pipeline)\(\s*\(?["']([A-Z]+)["']""", path.read_text())
            )
    assert "XADD" in sent
    assert sent - tried <= {"INFO", "PING", "AUTH", "SELECT", "CONFIG", *OF_OTHER_FORMS}


def test_a_jdk_is_found_by_java_home_and_an_old_one_is_a_warning_for_a_lake_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for version, level in (("1.8.0_392", "warn"), ("11.0.2", "warn"), ("17.0.1", "ok"), ("21", "ok"), ("24-ea", "ok")):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
        java.chmod(0o755)
        assert check_java(needed=True).level == level, version
        assert check_java(needed=False).level == "ok", version
    java.unlink()
    assert check_java(needed=True).level == "warn"
    assert "only the lake" in check_java(needed=False).found


def test_too_few_open_files_are_a_warning_with_the_number_to_set() -> None:
    assert check_open_files(10).level == "ok"
    short = check_open_files(10_000_000)
    assert short.level == "warn"
    assert "10,000,064 wanted" in short.found


def test_the_health_of_a_node_is_read_when_its_port_is_given(tmp_path: Path, start_broker: StartBroker) -> None:
    http_port = free_port()
    check = f"health on port {http_port}"
    assert findings(doctor(tmp_path, "--http-port", http_port, "--json"))[check]["found"].startswith("nothing listens")
    broker = start_broker(http_port=http_port)
    given = ("--http-port", http_port, "--port", broker.port, "--data-dir", broker.data_dir, "--json")
    assert findings(doctor(tmp_path, *given))[check]["found"] == "the node is ready"
    os.kill(broker.valkey_pid, Signals.SIGSTOP)
    try:
        ran = doctor(tmp_path, "--http-port", http_port, "--redis", "redis://127.0.0.1:1", "--json")
        assert findings(ran)[check]["level"] == "fail"
        assert "store (Redis does not answer)" in findings(ran)[check]["found"]
    finally:
        os.kill(broker.valkey_pid, Signals.SIGCONT)
    elsewhere = findings(doctor(tmp_path, "--http-port", broker.port, "--timeout", 1, "--json"))
    assert elsewhere[f"health on port {broker.port}"]["level"] == "fail"


def test_a_broker_without_the_health_that_was_asked_for_fails(tmp_path: Path, broker: BrokerProcess) -> None:
    http_port = free_port()
    ran = doctor(tmp_path, "--http-port", http_port, "--bootstrap", broker.address, "--json")
    assert findings(ran)[f"health on port {http_port}"]["advice"] == f"start it with --http-port {http_port}"
    assert ran.code == 1
