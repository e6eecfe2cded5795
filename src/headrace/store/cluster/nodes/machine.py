"""Identifies the machine as far as ports go: two brokers with the same machine id cannot both hold one port.

That is the running kernel and, on Linux, the network namespace: two containers on one kernel can both have port 9092.
"""

from __future__ import annotations

import secrets
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


@cache
def machine_id() -> str:
    """The same for all processes that share their ports, until the machine starts anew.

    Where the system does not tell, a name that nobody else has: then a lease is waited for instead of taken over.
    """
    try:
        return f"{_BOOT_ID.read_text().strip()}/{_NETWORK.stat().st_ino}"
    except OSError:
        return secrets.token_hex(8)
