"""How long from the command to the ready line, and what an idle broker weighs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.table import show

_READY = "headrace ready on"


def run(*, quick: bool) -> None:
    ready_ms, memory_mib = [], []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        for _ in range(3 if quick else 11):
            seconds, size = _once(folder)
            ready_ms.append(seconds * 1000)
            memory_mib.append(size)
    # The first start is cold: it compiles Python's files and makes the data directory.
    warm = ready_ms[1:]
    show(
        ["figure", "median", "spread"],
        [
            ["start to ready, warm", f"{statistics.median(warm):.0f} ms", f"{min(warm):.0f} to {max(warm):.0f} ms"],
            ["memory, idle, broker without its Valkey", f"{statistics.median(memory_mib):.0f} MiB", ""],
        ],
    )


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
