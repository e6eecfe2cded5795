"""`make compare REF=main WORKLOAD=small-producers`: this tree's broker against another commit's, alternating.

Shows what a change gains. Only the brokers' code differs: Python, libraries, clients and the embedded server are the
same. In place of a commit a folder can be named that has a tree's code in `src`, such as one with compiled modules
(docs/decisions/033). Each round measures both, one after the other, so a ratio is taken between neighbours; on a shared
machine a single one says little, the median of many does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from bench import groups, kafka, latency, small_producers
from bench import requests as requests_load
from bench.clients import Clients, java_clients, rdkafka_clients
from bench.interpreter import ROOT
from bench.rdkafka import Job, run_job
from bench.systems import CpuMeter, Headrace, run_python, take_turns, topic
from bench.turns import tail_run, turn
from bench.workloads import Run, Workload

_MB = 1e6
_PARTITIONS = 6
_OURS = "this tree"

Figures = dict[str, float]
Opening = Callable[[], contextlib.AbstractContextManager[Clients]]


def _run(kind: str, size_bytes: int, system: Headrace) -> Figures:
    job = Job("produce", system.address, "compare", 2 * 10**8 // size_bytes, size_bytes, _PARTITIONS)
    with topic(system, "compare", _PARTITIONS):
        with CpuMeter(system.pids) as meter:
            done = run_job(job)
        if kind == "consume":
            with CpuMeter(system.pids) as meter:
                done = run_job(Job("consume", job.address, job.topic, job.records, size_bytes, _PARTITIONS))
    return {"records/s": done.rate, **_per_mb(meter, job.records * size_bytes / _MB)}


def _requests(connections: int, partitions: int, batch_bytes: int, requests: int, system: Headrace) -> Figures:
    load = requests_load.Load(
        address=system.address,
        topic="compare",
        requests=requests,
        connections=connections,
        partitions=partitions,
        batch_bytes=batch_bytes,
    )
    with topic(system, "compare", requests_load.PARTITIONS), CpuMeter(system.pids) as meter:
        run_python("bench.requests", msgspec.json.encode(load).decode())
    return {f"{what}, us CPU/request": used / requests * 1e6 for what, used in meter.used_s.items()}


def _tail(workload: Workload, clients: Clients, system: Headrace) -> Figures:
    return _figures(tail_run(clients, workload, system))


def _in_and_out(workload: Workload, clients: Clients, system: Headrace) -> Figures:
    found = turn(clients, workload, system)
    assert found.consumed is not None
    produced, consumed = _figures(found.produced), _figures(found.consumed)
    return {f"produce, {unit}": value for unit, value in produced.items()} | {
        f"consume, {unit}": value for unit, value in consumed.items()
    }


def _figures(run: Run) -> Figures:
    return {"records/s": run.rate} | {f"{what}, ms CPU/MB": used for what, used in run.cpu_ms.items()}


def _per_mb(meter: CpuMeter, payload_mb: float) -> Figures:
    return {f"{what}, ms CPU/MB": used / payload_mb * 1000 for what, used in meter.used_s.items()}


def _small_producers(system: Headrace) -> Figures:
    done, cpu_us = small_producers.turn(system, 200)
    return {"records/s": done.rate, "broker, us CPU/record": cpu_us}


def _groups(system: Headrace) -> Figures:
    formed = groups.form_turn(200, system)
    return {
        "form, ms without the delay": formed.beyond_delay_ms,
        "form again, ms": formed.again_ms,
        "broker, ms CPU": formed.broker_cpu_ms,
    }


def _latency(system: Headrace) -> Figures:
    return {f"{name}, ms": found for name, found in latency.end_to_end(system, 2).items()}


WORKLOADS: dict[str, Callable[[Headrace], Figures]] = {
    "produce": partial(_run, "produce", 100),
    "produce-1k": partial(_run, "produce", 1_000),
    "consume": partial(_run, "consume", 100),
    "consume-1k": partial(_run, "consume", 1_000),
    "batch-16k": partial(_requests, 1, 1, 16_000, 15_000),
    "batches-16k": partial(_requests, 1, 6, 16_000, 4_000),
    "batch-100": partial(_requests, 20, 1, 100, 40_000),
    "small-producers": _small_producers,
    "groups": _groups,
    "latency": _latency,
}
STAYING: dict[str, tuple[Opening, Callable[[Clients, Headrace], Figures]]] = {
    "tail": (rdkafka_clients, partial(_tail, Workload(1_000, 1, "all", "none", 200_000))),
    "java": (java_clients, partial(_in_and_out, Workload(100, 1, "all", "none", 10**6))),
    "java-1k": (java_clients, partial(_in_and_out, Workload(1_000, 6, "all", "none", 10**5))),
    "java-tail": (java_clients, partial(_tail, Workload(100, 6, "all", "none", 10**6))),
}
"""Those whose clients stay for all rounds; Java's send batches of 16 KB, which is their default."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ref", help="the commit to compare with: a branch, a tag, a hash; or a folder with `src` in it")
    parser.add_argument("workload", nargs="?", default="produce-1k", choices=[*WORKLOADS, *STAYING])
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    # So that whatever was started is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    if chosen.workload.startswith("java") and (reason := kafka.why_not()):
        parser.error(reason)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        measure = _measure(chosen.workload, stack)
        sources = stack.enter_context(_checked_out(chosen.ref, Path(name) / "sources"))
        systems: list[Headrace] = []
        for label, tree in {_OURS: ROOT, chosen.ref: sources}.items():
            system = _start(Path(name) / f"broker-{len(systems)}", tree, label)
            stack.callback(system.stop)
            systems.append(system)
            measure(system)  # a first one is slower
        found = take_turns(systems, chosen.rounds, measure)
    _print(chosen.workload, found[_OURS], found[chosen.ref], chosen.ref)


def _measure(workload: str, stack: contextlib.ExitStack) -> Callable[[Headrace], Figures]:
    if workload in WORKLOADS:
        return WORKLOADS[workload]
    opening, measure = STAYING[workload]
    return partial(measure, stack.enter_context(opening()))


@contextlib.contextmanager
def _checked_out(ref: str, path: Path) -> Iterator[Path]:
    if (Path(ref) / "src" / "headrace").is_dir():
        yield Path(ref).resolve()
        return

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(ROOT), "worktree", *words], check=True, stdout=subprocess.DEVNULL)

    git("add", "--quiet", "--detach", str(path), ref)
    try:
        yield path
    finally:
        git("remove", "--force", str(path))


def _start(folder: Path, tree: Path, name: str) -> Headrace:
    """A broker from a tree's own code: what is first on the path is imported."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tree / "src"), before]))
    try:
        system = Headrace(folder)
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    system.name = name
    return system


def _print(workload: str, ours: list[Figures], theirs: list[Figures], ref: str) -> None:
    print(f"{workload}, {len(ours)} rounds: medians of this tree, of {ref}, and of the ratios (minimum to maximum)")
    for unit in ours[0]:
        here, there = [one[unit] for one in ours], [one[unit] for one in theirs]
        ratios = sorted(mine / other for mine, other in zip(here, there, strict=True) if other)
        if ratios:
            spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"  {unit:28} {median(here):12,.3f} {median(there):12,.3f}   {spread}")


if __name__ == "__main__":
    main()
