"""A Redis primary with replicas, and what happens to them: one hangs, one dies, one takes over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from headrace.store.embedded.options import running_options
from headrace.store.embedded.ports import HOST
from headrace.store.embedded.trial import TrialServer
from headrace.store.redis.link import parse_info
from headrace.store.redis.replicas import count_in_step
from tests.broker_process import wait_until


class ReplicatedServers:
    """`primary` is the first server, the others replicate it."""

    def __init__(self, folder: Path, replicas: int = 1, durability: str = "memory") -> None:
        self._folder = folder
        self._options = {
            **running_options(durability, 1 << 30),  # type: ignore[arg-type]
            "appendonly": "no" if durability == "memory" else "yes",
            "repl-diskless-sync-delay": "0",
        }
        self.servers = [TrialServer(folder / f"server-{at}", dict(self._options)) for at in range(1 + replicas)]
        self.primary, *self.replicas = self.servers

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.primary.port}/0"

    def start(self) -> ReplicatedServers:
        for server in self.servers:
            server.start()
        for replica in self.replicas:
            self.attach(replica)
        return self

    def add_replica(self) -> TrialServer:
        """One more; returns once it is in step."""
        replica = TrialServer(self._folder / f"server-{len(self.servers)}", dict(self._options))
        self.servers.append(replica)
        self.replicas.append(replica)
        self.attach(replica)
        return replica

    def attach(self, replica: TrialServer) -> None:
        """Has a server replicate the primary; returns once it is in step."""
        if not replica.is_running:
            replica.start()
        attached = self.in_step()
        replica.ask("REPLICAOF", HOST, self.primary.port)
        wait_until(lambda: self.in_step() > attached, f"{replica} does not get in step")

    def in_step(self) -> int:
        return count_in_step(parse_info(self.primary.ask("INFO", "replication")))

    def wait_in_step(self, number: int) -> None:
        wait_until(lambda: self.in_step() == number, f"{number} replicas in step are not reached")

    @staticmethod
    def freeze(server: TrialServer) -> None:
        server.send_signal(SIGSTOP)

    @staticmethod
    def thaw(server: TrialServer) -> None:
        server.send_signal(SIGCONT)

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.stop()


@contextmanager
def replicated(folder: Path, replicas: int = 1, durability: str = "memory") -> Iterator[ReplicatedServers]:
    servers = ReplicatedServers(folder, replicas, durability)
    try:
        yield servers.start()
    finally:
        servers.stop()
