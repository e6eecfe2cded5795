"""`headrace serve --nodes N` as a process of its own: its nodes' processes, and ports that are free in a row."""

from __future__ import annotations

import os
from pathlib import Path
from signal import Signals

from headrace.store.embedded.ports import free_ports
from tests.broker_process import BrokerProcess, wait_until


def ports_in_a_row(count: int) -> int:
    """The first of so many ports that were all free a moment ago."""
    return free_ports(count)[0]


def node_pids(broker: BrokerProcess) -> list[int]:
    """The processes of a supervisor's nodes, the oldest first."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    return [int(pid) for pid in children if is_node(int(pid))]


def is_node(pid: int) -> bool:
    """Whether the process is a node; one that has ended and was not waited for is none."""
    try:
        return b"headrace.cli.serve.node_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def kill_node(broker: BrokerProcess, index: int = 0) -> None:
    """SIGKILL of one node, and the wait for the process that takes its place."""
    before = node_pids(broker)
    os.kill(before[index], Signals.SIGKILL)
    wait_until(lambda: len(set(node_pids(broker)) - {before[index]}) == len(before), "the node is not started again")


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(is_node(pid) for pid in pids), "nodes are left")
