"""How long from the command to the ready line, and what an idle broker weighs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import HEADRACE, Figure, Report

_READY = "headrace ready on"


def run(report: Report, *, quick: bool) -> None:
    ready_ms, memory_mib = [], []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        _once(folder)  # the first start is cold: it compiles Python's files and makes the data directory
        for _ in range(2 if quick else 10):
            seconds, size = _once(folder)
            ready_ms.append(seconds * 1000)
            memory_mib.append(size)
    report.add(Figure("startup", "start to ready, warm", "ms", {HEADRACE: ready_ms}, goal="start"))
    report.add(Figure("startup", "memory, idle, broker without its Valkey", "MiB", {HEADRACE: memory_mib}))


def _once(folder: str) -> tuple[float, float]:
    command = [str(Path(sys.executable).parent / "headrace"), "serve", "--port", "0", "--data-dir", folder]
    command += ["--log-level", "warning"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        for line in broker.stdout:
            if line.startswith(_READY):
                break
        seconds = time.perf_counter() - began
        status = Path(f"/proc/{broker.pid}/status")
        size = 0.0
        if status.exists():
            size = next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if "VmRSS" in line)
        broker.terminate()
        broker.wait()
    return seconds, size
