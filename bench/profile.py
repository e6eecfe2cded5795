"""`make profile`: a flame graph (SVG) of a broker under one workload.

py-spy samples the running process from outside, so the broker needs no instrumentation. With --native the time
inside C libraries (uvloop, crc32c, hiredis) is shown by their functions' names, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from bench import groups, small_producers
from bench.clients import rdkafka_clients
from bench.processes import cpu_s
from bench.rdkafka import Job, run_job
from bench.systems import Headrace, topic
from bench.turns import tail_run
from bench.workloads import Workload

CACHE = Path(__file__).parent / ".cache"
_SAMPLES_PER_S = 400
_PARTITIONS = 6


def _produce(system: Headrace, size_bytes: int) -> None:
    with topic(system, "profile", _PARTITIONS):
        run_job(Job("produce", system.address, "profile", 10**8 // size_bytes, size_bytes, _PARTITIONS))


def _consume(system: Headrace, again: Callable[[], bool], size_bytes: int) -> None:
    job = Job("produce", system.address, "profile", 2 * 10**8 // size_bytes, size_bytes, _PARTITIONS)
    with topic(system, "profile", _PARTITIONS):
        run_job(job)
        while again():
            run_job(Job("consume", system.address, "profile", job.records, size_bytes, _PARTITIONS))


def _tail(system: Headrace) -> None:
    with rdkafka_clients() as clients:
        tail_run(clients, Workload(100, 1, "all", "none", 10**6), system)


WORKLOADS: dict[str, Callable[[Headrace, Callable[[], bool]], object]] = {
    "produce": lambda system, _: _produce(system, 100),
    "produce-1k": lambda system, _: _produce(system, 1_000),
    "consume": lambda system, again: _consume(system, again, 100),
    "consume-1k": lambda system, again: _consume(system, again, 1_000),
    "tail": lambda system, _: _tail(system),
    "small-producers": lambda system, _: small_producers.turn(system, 200),
    "groups": lambda system, _: groups.form_turn(200, system),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="produce", choices=WORKLOADS)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--native", action="store_true", help="also the functions inside C libraries")
    parser.add_argument("--raw", action="store_true", help="stacks as text instead of an image")
    chosen = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    path = CACHE / f"profile-{chosen.workload}.{'txt' if chosen.raw else 'svg'}"
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        system = Headrace(Path(folder))
        try:
            _record(system, chosen, path)
        finally:
            system.stop()
    print(f"written: {path}")


def _record(system: Headrace, chosen: argparse.Namespace, path: Path) -> None:
    work, over = WORKLOADS[chosen.workload], threading.Event()
    work(system, lambda: False)  # handlers are imported and codecs made at their first use
    command = [
        str(Path(sys.executable).parent / "py-spy"), "record", "--pid", str(system.process.pid), "--output", str(path),
        "--rate", str(_SAMPLES_PER_S), "--duration", str(chosen.seconds),
        "--format", "raw" if chosen.raw else "flamegraph",
        *(["--native"] if chosen.native else []),
    ]  # fmt: skip
    before = cpu_s(system.process.pid)
    recorder = subprocess.Popen(command)

    def watch() -> None:
        recorder.wait()
        over.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    while not over.is_set():
        work(system, lambda: not over.is_set())
    watcher.join()
    print(f"the broker used {cpu_s(system.process.pid) - before:.1f} s of CPU during the profile")
    if recorder.returncode:
        sys.exit("py-spy could not attach: run as root, or allow it with sysctl kernel.yama.ptrace_scope=0")


if __name__ == "__main__":
    main()
