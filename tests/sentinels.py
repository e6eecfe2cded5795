"""A primary with two replicas and three sentinels: real servers, for tests."""

from __future__ import annotations

import contextlib
from pathlib import Path
from signal import SIGSTOP

import hiredis

from headrace.store.embedded.ports import HOST
from headrace.store.embedded.trial import TrialServer
from tests.broker_process import wait_until

NAME = "main"
SENTINEL = ("sentinel.conf", "--sentinel")
"""How a server is told that it is one."""
_DOWN_AFTER_MS = 1_500
_TIMEOUT_S = 60.0
_SERVER = {"save": "", "appendonly": "no", "repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}


class WatchedServers:
    """`servers` has the first primary first; which one is it now is for the sentinels to say."""

    def __init__(self, folder: Path, *, replicas: int = 2, sentinels: int = 3) -> None:
        self.servers = [self._new_server(folder / f"server-{n}", dict(_SERVER)) for n in range(1 + replicas)]
        self.sentinels = [self._new_sentinel(folder / f"sentinel-{n}") for n in range(sentinels)]

    def _new_server(self, folder: Path, options: dict[str, str]) -> TrialServer:
        return TrialServer(folder, options)

    def _new_sentinel(self, folder: Path) -> TrialServer:
        return TrialServer(folder, {}, *SENTINEL)

    def _more_lines(self) -> list[str]:
        """What else the sentinels' files say."""
        return []

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(map(repr, self.sentinels))}/{NAME}"

    def start(self) -> WatchedServers:
        first = self.servers[0]
        for server in self.servers:
            server.start()
        for server in self.servers[1:]:
            server.ask("REPLICAOF", HOST, first.port)
        wait_until(self.are_replicas_in_step, "the replicas do not follow", _TIMEOUT_S)
        for sentinel in self.sentinels:
            (sentinel.folder / "sentinel.conf").write_text(
                f"sentinel monitor {NAME} {HOST} {first.port} {len(self.sentinels) // 2 + 1}\n"
                f"sentinel down-after-milliseconds {NAME} {_DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {NAME} 6000\n"
                f"sentinel parallel-syncs {NAME} 2\n" + "".join(f"{line}\n" for line in self._more_lines())
            )
            sentinel.start()
        wait_until(self.are_sentinels_together, "the sentinels do not find each other", _TIMEOUT_S)
        return self

    def stop(self) -> None:
        for server in [*self.sentinels, *reversed(self.servers)]:
            server.kill()

    @property
    def primary(self) -> TrialServer:
        """By the word of the first sentinel that answers."""
        for sentinel in self.sentinels:
            if sentinel.is_running:
                port = int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])
                return next(server for server in self.servers if server.port == port)
        raise AssertionError("no sentinel is left")

    def are_replicas_in_step(self) -> bool:
        with contextlib.suppress(OSError, hiredis.ReplyError):
            facts = [server.info("replication") for server in self.servers if server.is_running]
            replicas = [one for one in facts if one["role"] == "slave"]
            return len(replicas) == len(facts) - 1 and all(one["master_link_status"] == "up" for one in replicas)
        return False

    def are_sentinels_together(self) -> bool:
        """Whether each knows the others and the replicas: before that there is no failover."""
        wanted = (len(self.sentinels) - 1, len(self.servers) - 1)
        for sentinel in self.sentinels:
            row = sentinel.ask("SENTINEL", "MASTER", NAME)
            facts = dict(zip(row[::2], row[1::2], strict=True))
            if (int(facts[b"num-other-sentinels"]), int(facts[b"num-slaves"])) != wanted:
                return False
        return True

    def kill_primary(self) -> TrialServer:
        """Returns once another one is the primary, and says so itself."""
        old = self.primary
        old.kill()
        self._wait_replaced(old)
        return old

    def freeze_a_replica(self) -> TrialServer:
        """Returns once the sentinels know that it does not answer: until then they may choose it."""
        replica = next(server for server in self.servers if server is not self.primary)
        replica.send_signal(SIGSTOP)
        wait_until(lambda: self._is_down(replica), "the sentinels do not notice", _TIMEOUT_S)
        return replica

    def _is_down(self, replica: TrialServer) -> bool:
        for sentinel in self.sentinels:
            rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in sentinel.ask("SENTINEL", "REPLICAS", NAME)]
            if not any(int(row[b"port"]) == replica.port and b"s_down" in row[b"flags"] for row in rows):
                return False
        return True

    def fail_over(self) -> TrialServer:
        """In good order; asked for again if the sentinels refuse it, or begin and give up."""
        old = self.primary
        wait_until(lambda: self._is_replaced(old) or self._asks_for_another(), "no failover", _TIMEOUT_S)
        return old

    def _asks_for_another(self) -> bool:
        with contextlib.suppress(hiredis.ReplyError):  # one is under way, or no replica is good enough yet
            self.sentinels[0].ask("SENTINEL", "FAILOVER", NAME)
        return False

    def _wait_replaced(self, old: TrialServer) -> None:
        wait_until(lambda: self._is_replaced(old), "no failover", _TIMEOUT_S)

    def _is_replaced(self, old: TrialServer) -> bool:
        now = self.primary
        return now is not old and now.info("replication")["role"] == "master"
