"""A --redis that names the wrong kind of server: `serve` says in one sentence what to write, and `doctor` agrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store.embedded.ports import HOST
from headrace.store.embedded.trial import TrialServer
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
