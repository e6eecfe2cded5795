"""Ends the servers of a trial and removes its folder once the command that started them is gone.

The command does so itself, unless it is killed, or interrupted again while it does. So this is a process of its own,
which waits for the end of its standard input: `python -m headrace.store.embedded.sweeper FOLDER`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

PID_FILE = "server.pid"
"""In each server's folder, which is its working directory."""
_LOOKS = 20
_PAUSE_S = 0.05
"""A server that was started last writes its file a moment later."""


@contextlib.contextmanager
def swept(folder: Path) -> Iterator[None]:
    """Whatever ends this process: no server in the folder outlives it, and the folder goes."""
    line = [sys.executable, "-m", "headrace.store.embedded.sweeper", str(folder)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True):
        yield


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    folder = Path(sys.argv[1])
    for _ in range(_LOOKS):
        if not folder.exists():
            return  # the command has done it
        for file in folder.glob(f"*/{PID_FILE}"):
            with contextlib.suppress(OSError, ValueError):
                _end(int(file.read_text()), file.parent)
        threading.Event().wait(_PAUSE_S)
    shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, folder: Path) -> None:
    if Path(f"/proc/{pid}/cwd").resolve() == folder.resolve():  # the number may be another process's by now
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
