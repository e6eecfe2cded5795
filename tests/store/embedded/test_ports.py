"""Ports for servers that come and go."""

from __future__ import annotations

import socket
import subprocess
import sys

from headrace.store.embedded.ports import HOST, free_ports

_IN_ANOTHER_PROCESS = "from headrace.store.embedded.ports import free_ports; print(*free_ports(3))"


def block_of(ports: list[int]) -> int:
    (block,) = {port // 500 for port in ports}
    return block


def test_they_are_in_a_row_and_different_each_time() -> None:
    first, second = free_ports(3), free_ports(2)
    assert first == list(range(first[0], first[0] + 3))
    assert not set(first) & set(second)


def test_one_that_is_taken_is_not_among_them() -> None:
    (known,) = free_ports(1)
    with socket.create_server((HOST, known + 2)):
        assert known + 2 not in [*free_ports(2), *free_ports(2)]


def test_another_process_finds_none_of_them_although_nobody_listens() -> None:
    found = subprocess.check_output([sys.executable, "-c", _IN_ANOTHER_PROCESS], text=True)
    assert block_of([int(port) for port in found.split()]) != block_of(free_ports(3))
