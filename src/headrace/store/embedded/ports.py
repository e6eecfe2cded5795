"""Ports for servers that come and go: no other process that looks for ports here finds the same.

Below those that systems give to outgoing connections: a port stays free while its server is down.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path

from headrace.store.embedded.data_directory import CannotStart

HOST = "127.0.0.1"
_FIRST = 20_000
_BLOCKS = 24
_BLOCK_PORTS = 500
_ROW_MAX = 20
_locks: list[object] = []
"""Kept open: a lock ends with its file."""


def free_ports(count: int) -> list[int]:
    """Ports in a row that were free a moment ago."""
    starts = _starts(os.getpid())
    for _ in range(_BLOCK_PORTS):
        ports = list(_row(next(starts), count))
        if _are_free(ports):
            for _ in ports[1:]:
                next(starts)
            return ports
    raise CannotStart(f"no {count} ports in a row from {_FIRST} on are free")


def _row(first: int, count: int) -> range:
    return range(first, first + count)


def _are_free(ports: list[int]) -> bool:
    with contextlib.ExitStack() as probes:
        try:
            for port in ports:
                probes.enter_context(socket.create_server((HOST, port)))
        except OSError:
            return False
    return True


@cache
def _starts(process: int) -> Iterator[int]:
    """The ports of a process's block, again and again."""
    return cycle(_row(_FIRST + _own_block() * _BLOCK_PORTS, _BLOCK_PORTS - _ROW_MAX))


def _own_block() -> int:
    """A block that no other process has; it is ours until this process ends."""
    for block in random.sample(range(_BLOCKS), _BLOCKS):
        with contextlib.suppress(OSError):
            lock = (Path(tempfile.gettempdir()) / f"headrace-ports-{block}").open("a")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _locks.append(lock)
            return block
    raise CannotStart(f"all ports from {_FIRST} on are given to other processes")
