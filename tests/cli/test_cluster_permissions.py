"""Each server of a cluster has its own users and settings: one that does not fit is named before anything is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store.redis.topology import slot_number
from tests.cli.conftest import run_command, run_process
from tests.clusters import ClusterOfServers, running


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfServers]:
    with running(ClusterOfServers(tmp_path_factory.mktemp("cluster"), replicas=0)) as cluster:
        yield cluster


@pytest.mark.parametrize("denied", ["xadd", "exec", "evalsha"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_command_that_one_server_forbids_is_named_with_the_server(
    denied: str, at: int, servers: ClusterOfServers, tmp_path: Path
) -> None:
    url = _forbid(servers, at, denied)
    said = run_process("serve", "--port", 0, "--redis", url).sentence()
    assert f"redis://{servers.servers[at]} does not allow {denied.upper()} on headrace:*" in said
    assert "secret" not in said
    ran = run_command("doctor", "--port", 0, "--redis", url, "--data-dir", tmp_path, "--json")
    [found] = [row for row in ran.json if row["check"] == "redis permissions"]
    assert found["level"] == "fail"
    assert f"may not {denied.upper()} on headrace:* at redis://{servers.servers[at]}" in found["found"]


def test_a_server_that_forbids_info_is_not_called_away(servers: ClusterOfServers) -> None:
    at = next(n for n, server in enumerate(servers.servers) if server is not servers.owner_of(slot_number("{nodes}")))
    said = run_process("serve", "--port", 0, "--redis", _forbid(servers, at, "info")).sentence()
    assert f"redis://{servers.servers[at]} rejected the connection: NOPERM" in said
    assert "'info'" in said
    assert "allow it with ACL SETUSER" in said


def test_the_doctor_says_of_which_server_a_finding_is(servers: ClusterOfServers, tmp_path: Path) -> None:
    picky = servers.servers[1]
    picky.ask("CONFIG", "SET", "cluster-require-full-coverage", "yes")
    try:
        ran = run_command("doctor", "--port", 0, "--redis", servers.url, "--data-dir", tmp_path, "--json")
    finally:
        picky.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
    lasting = [row["found"] for row in ran.json if row["check"] == "redis persistence"]
    assert sorted(found.split(": ")[0] for found in lasting) == sorted(f"redis://{one}" for one in servers.servers)
    [found] = [row for row in ran.json if row["check"] == "redis cluster"]
    assert found["level"] == "warn"
    assert found["found"].startswith(f"redis://{picky}: one dead shard stops all others")


def _forbid(servers: ClusterOfServers, at: int, denied: str) -> str:
    """Forbids a command to a user of one server; the URL names the user, and another server."""
    for server in servers.servers:
        server.ask("ACL", "SETUSER", "mill", "reset", "on", ">secret", "~*", "&*", "+@all")
    servers.servers[at].ask("ACL", "SETUSER", "mill", f"-{denied}")
    return f"redis+cluster://mill:secret@{servers.servers[at - 1]}"
