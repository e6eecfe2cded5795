"""Fetches, builds and runs one client against a broker of its own, and turns that into a row of the table."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.stores import broker_settings

from interop.clients import CACHE, HERE, Client, Command, Tool
from interop.logins import login_environment
from interop.report import parse

FETCH_TIMEOUT_S = 600
REBALANCE_DELAY_MS = 300  # instead of 3 s, because each client starts many groups
FETCHED = ".fetched"


@dataclass(frozen=True)
class Row:
    """How one client fared: `missing` says what was not there, `failures` which checks failed."""

    client: str
    version: str
    checked: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    missing: str = ""

    @property
    def result(self) -> str:
        if self.missing:
            return f"missing: {self.missing}"
        if self.failures:
            return f"{len(self.failures)} of {len(self.failures) + len(self.checked)} failed"
        return f"all {len(self.checked)} passed"


class Missing(Exception):
    """Something that a client needs is not on this machine or cannot be reached from it."""


class Broken(Exception):
    """The client's program does not build or did not end as it should."""


def run_client(client: Client) -> Row:
    """Everything about one client; never raises for what it finds."""
    log_path = CACHE / f"{client.name}.log"
    CACHE.mkdir(exist_ok=True)
    log_path.write_text("")
    try:
        prepare(client, log_path)
        return _run(client, log_path)
    except Missing as why:
        return Row(client.name, "-", missing=str(why))
    except Broken as why:
        return Row(client.name, "-", failures=(str(why),))


def prepare(client: Client, log_path: Path) -> None:
    """Makes sure that a client's tools and packages are there; raises Missing or Broken."""
    for tool in client.tools:
        _provide(tool, log_path)
    if not _is_fetched(client):
        shutil.rmtree(client.work_dir, ignore_errors=True)
        client.work_dir.mkdir()
        _copy(client, client.manifests)
        for command in client.fetch:
            if code := _logged(command, client, log_path):
                raise Missing(f"its packages; `{_short(command)}` exited with {code}, see {_relative(log_path)}")
        (client.work_dir / FETCHED).touch()
    _copy(client, client.sources)
    for command in client.build:
        if code := _logged(command, client, log_path):
            raise Broken(f"build: `{_short(command)}` exited with {code}, see {_relative(log_path)}")


def _is_fetched(client: Client) -> bool:
    """Whether the packages that the manifests name are in the client's folder."""
    copies = [client.work_dir / manifest.name for manifest in client.manifests]
    return (client.work_dir / FETCHED).exists() and all(
        copy.read_bytes() == manifest.read_bytes() for copy, manifest in zip(copies, client.manifests, strict=True)
    )


def _copy(client: Client, sources: tuple[Path, ...]) -> None:
    for source in sources:
        target = client.work_dir / source.name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)


def _provide(tool: Tool, log_path: Path) -> None:
    """Makes sure that a tool is there; installs it where that needs no question."""
    if shutil.which(tool.name):
        return
    if tool.install and os.geteuid() == 0 and shutil.which(tool.install[0]):
        print(f"{tool.name} is not installed: running `{' '.join(tool.install)}`", flush=True)
        with log_path.open("a") as log:
            subprocess.run(tool.install, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if shutil.which(tool.name):
            return
    raise Missing(f"`{tool.name}` is not on the PATH; it comes with {tool.source}")


def _short(command: Command) -> str:
    """A command's name and what it is asked to do, without its options."""
    return " ".join(part for part in command if not part.startswith("-"))


def _logged(command: Command, client: Client, log_path: Path) -> int:
    """The exit code of a command that prepares a client; 124, as timeout(1) says, if it took too long."""
    with log_path.open("a") as log, contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            command, cwd=client.work_dir, env=_environment(client), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            timeout=FETCH_TIMEOUT_S, check=False,
        ).returncode  # fmt: skip
    return 124


def _run(client: Client, log_path: Path) -> Row:
    with tempfile.TemporaryDirectory(prefix="headrace-interop-") as folder:
        settings = {"group_initial_rebalance_delay_ms": REBALANCE_DELAY_MS, **broker_settings()}
        broker = BrokerProcess(Path(folder) / "data", **settings)
        try:
            broker.start()
            with contextlib.ExitStack() as stack:
                extra = stack.enter_context(login_environment(Path(folder) / "logins")) if client.logs_in else {}
                output, ending = _output_of(client, broker.address, log_path, extra)
        finally:
            broker.end()
            broker_log = broker.log
            with log_path.open("a") as log:
                log.write(f"\n--- the broker ---\n{broker_log}")
    report = parse(output.splitlines())
    failures = report.failed + _errors_in(broker_log)
    if not failures and (ending or not report.passed):
        failures = [f"{ending or 'it ran no checks'}, see {_relative(log_path)}"]
    return Row(client.name, report.version, tuple(report.passed), tuple(failures))


def _errors_in(broker_log: str) -> list[str]:
    """Whatever a client asks, the broker itself has no reason to log an error or Python's own warnings."""
    entries = [json.loads(line) for line in broker_log.splitlines() if line.startswith("{")]
    bad = [entry for entry in entries if entry["level"] == "error" or entry["logger"] == "py.warnings"]
    return sorted({f"the broker logged: {entry['message']} {entry.get('exception', '')}".strip() for entry in bad})


def _output_of(client: Client, address: str, log_path: Path, extra: dict[str, str]) -> tuple[str, str]:
    """What the program wrote to stdout, and what was wrong with its end, if anything."""
    with log_path.open("a") as log:
        process = subprocess.Popen(
            (*client.run, address), cwd=client.work_dir, env=_environment(client) | extra, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=client.limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return output, f"not finished after {client.limit_s} s"
    return output, "" if process.returncode == 0 else f"its program exited with {process.returncode}"


def _environment(client: Client) -> dict[str, str]:
    """The user's environment, with our Python modules in reach of the programs that are written in it."""
    return os.environ | client.env | {"PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path[1:]])}


def _relative(path: Path) -> str:
    return str(path.relative_to(HERE.parent))
