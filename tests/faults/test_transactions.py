"""Copiers in both versions of the protocol, while nodes are killed and frozen and the store is killed.

Nothing may be lost, doubled, torn or left open. With `always` the store loses nothing that it has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from signal import Signals

import pytest

from tests.broker_process import RedisProcess
from tests.conftest import StartBroker, StartRedis
from tests.faults.copying import EAGER, Copying


class CopyingOnOneStore(Copying):
    """Two nodes on a server."""

    def __init__(self, start_broker: StartBroker, store: RedisProcess) -> None:
        self.store = store
        super().__init__([start_broker(redis=store.url, node_id=id, node_lease_ms=2_000, **EAGER) for id in range(2)])


def _kill_nodes(copying: CopyingOnOneStore) -> None:
    for node in copying.nodes:
        node.kill()
        node.start()


def _freeze(copying: CopyingOnOneStore) -> None:
    """Past its lease; the others go on."""
    node = copying.nodes[1]
    node.send_signal(Signals.SIGSTOP)
    try:
        copying.goes_on()
    finally:
        node.send_signal(Signals.SIGCONT)


def _kill_store(copying: CopyingOnOneStore) -> None:
    copying.store.stop(Signals.SIGKILL)
    copying.store.start()


def _kill_everything(copying: CopyingOnOneStore) -> None:
    for node in copying.nodes:
        node.kill()
    _kill_store(copying)
    for node in copying.nodes:
        node.start()


FAULTS: dict[str, Callable[[CopyingOnOneStore], None]] = {
    "nodes are killed": _kill_nodes,
    "a node is frozen past its lease": _freeze,
    "the store is killed": _kill_store,
    "everything is killed": _kill_everything,
}


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
def test_copies_are_exact(start_broker: StartBroker, start_redis: StartRedis, fault: str) -> None:
    copying = CopyingOnOneStore(start_broker, start_redis("always"))
    copying.goes_on()
    for _ in range(3):
        FAULTS[fault](copying)
        copying.goes_on()
    copying.ends()
