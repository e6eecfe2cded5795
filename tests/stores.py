"""What the tests' stores run on: `TEST_STORE=one` (a server each), `sentinel` or `cluster` (one for the whole run).

A server alone is cheap, so each test has its own, with options of its own. The others take seconds to start: all tests
of a run share one, brokers by prefixes of their own, tests of the store after a flush.

`of_one_server` is for what another form cannot show: a server's own options, its refusals, one link without slots,
moving data between servers, and who is connected to which. Everything else runs on all three. Behind sentinels a test
that stops or crashes the primary is left out too, because they would replace it: `tests/faults` is about that. A test
that waits for a connection waits for those of all shards (`new_servers` in `tests/store/produced.py`), and its keys
share a tag.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any
from uuid import uuid4

import pytest
import redis

from headrace.store.embedded.ports import HOST
from headrace.store.embedded.trial import TrialServer
from tests.broker_process import BrokerProcess, wait_until
from tests.clusters import ClusterOfServers
from tests.sentinels import WatchedServers

FORM = os.environ.get("TEST_STORE", "one")
of_one_server = pytest.mark.skipif(FORM != "one", reason="about a server alone")
_TIMEOUT_S = 60.0


@functools.cache
def _shared() -> ClusterOfServers | WatchedServers:
    folder = Path(tempfile.mkdtemp(prefix="hr-"))
    # Servers without replicas: a test that kills them means a crash, not a failover.
    made = WatchedServers(folder) if FORM == "sentinel" else ClusterOfServers(folder, replicas=0, durability="always")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(made.stop)
    made.start()
    return made


def broker_settings() -> dict[str, object]:
    """What a broker of the tests is started with beside its own settings."""
    if FORM == "one":
        return {}
    return {"redis": _shared().url, "key_prefix": f"headrace-{uuid4().hex[:8]}"}


def key_at(rest: str) -> str:
    """A key of whichever broker has it, by what comes behind its prefix."""
    if FORM == "one":
        return f"headrace:{rest}"
    found: list[bytes] = SharedServers(_shared()).ask("KEYS", f"*:{rest}")
    return found[0].decode()


def redis_beside(broker: BrokerProcess) -> Any:
    """redis-py on the servers that a broker uses."""
    if FORM != "one":
        return SharedServers(_shared()).client()
    record = json.loads((broker.data_dir / "valkey.json").read_text())
    return redis.Redis(unix_socket_path=record["socket"])


def crash_store(broker: BrokerProcess) -> None:
    """Kills the servers of a broker that is dead; its next start, or this, brings them back with their files."""
    if FORM == "one":
        os.kill(broker.valkey_pid, SIGKILL)
    else:
        SharedServers(_shared()).restart()


def shared_servers() -> SharedServers:
    """All servers of the run, without keys."""
    servers = SharedServers(_shared())
    servers.clear()
    return servers


class SharedServers:
    """Looks to a test like the server that it has alone (`tests/store/servers.py`)."""

    def __init__(self, made: ClusterOfServers | WatchedServers) -> None:
        self._made = made
        self.url = made.url

    @property
    def _servers(self) -> list[TrialServer]:
        return self._made.servers

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self._servers]

    def clear(self) -> None:
        """Starts what a test left dead, and removes all keys."""
        self.start()
        for server in self._primaries:
            server.ask("FLUSHALL")
            server.ask("SCRIPT", "FLUSH")

    @property
    def _primaries(self) -> list[TrialServer]:
        return [self._made.primary] if isinstance(self._made, WatchedServers) else self._servers

    def start(self) -> SharedServers:
        for server in self._servers:
            if not server.is_running:
                server.start()
        if isinstance(self._made, ClusterOfServers):
            self._made.wait_whole()
        else:
            wait_until(self._made.are_replicas_in_step, "the replicas do not follow", _TIMEOUT_S)
        return self

    def kill(self) -> None:
        """All at once. What sentinels make of it is not what such a test is about."""
        if isinstance(self._made, WatchedServers):
            pytest.skip("sentinels would replace the primary")
        for server in self._servers:
            server.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """All hang. Of a cluster without replicas nothing else comes of it."""
        if isinstance(self._made, WatchedServers):
            pytest.skip("sentinels would replace the primary")
        for server in self._servers:
            server.send_signal(SIGSTOP)

    def resume(self) -> None:
        for server in self._servers:
            server.send_signal(SIGCONT)

    def command_counts(self) -> dict[str, int]:
        """Of all primaries together."""
        counts: Counter[str] = Counter()
        for server in self._primaries:
            for name, facts in server.info("commandstats").items():
                counts[name.removeprefix("cmdstat_")] += int(facts.removeprefix("calls=").split(",")[0])
        return dict(counts)

    def checkpoint(self) -> Path:
        if isinstance(self._made, WatchedServers):
            pytest.skip("sentinels would replace the primary")
        copy = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self._servers[0].folder.parent))
        for at, server in enumerate(self._servers):
            shutil.copytree(server.folder / "appendonlydir", copy / str(at))
        return copy

    def go_back_to(self, checkpoint: Path, *, start: bool = True) -> None:
        """A crash that loses all that was written since the checkpoint."""
        self.kill()
        for at, server in enumerate(self._servers):
            shutil.rmtree(server.folder / "appendonlydir")
            shutil.copytree(checkpoint / str(at), server.folder / "appendonlydir")
        if start:
            self.start()

    def client(self) -> redis.Redis:
        """redis-py's own opinion of where a key is."""
        if isinstance(self._made, WatchedServers):
            return redis.Redis(HOST, self._made.primary.port)
        return redis.RedisCluster(HOST, self._servers[0].port)  # type: ignore[return-value]

    def ask(self, *words: str | int | bytes) -> Any:
        """One command's reply; commands without a key go to all servers, of which the first answers."""
        if words[0] in ("SCRIPT", "CLIENT", "CONFIG", "INFO", "FLUSHALL", "PUBSUB"):
            replies = [server.ask(*words) for server in self._primaries]
            return b"".join(replies) if words[:2] == ("CLIENT", "LIST") else replies[0]
        if words[0] == "KEYS":
            return [key for server in self._primaries for key in server.ask(*words)]
        with self.client() as client:
            return client.execute_command(*words)

    def stream(self, key: str) -> list[Any]:
        rows: list[Any] = self.ask("XRANGE", key, "-", "+")
        return rows

    def keys_with(self, text: str) -> set[str]:
        return {key.decode() for key in self.ask("KEYS", f"*{text}*")}

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"only a single server has {name}")
