"""`headrace serve` forked from a process that has imported everything: imports are most of what a start costs.

The suite starts brokers by the hundreds, and each would spend most of its time on the same imports. A worker keeps one
template, a process without threads and without an event loop. What it forks sets its environment, its folder and its
output, and calls the command as the script of the package does. Tests of the command itself start it themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import IO

_REQUEST_MAX_BYTES = 128 * 1024


class Forked:
    """A process of the template's, with what tests use of Popen."""

    def __init__(self, pid: int, stdout: IO[str], status: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self._status = status
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._ended(0)

    def wait(self, timeout: float) -> int:
        """The exit code, negative for a signal."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("headrace serve", timeout)
        return code

    def _ended(self, timeout_s: float) -> int | None:
        if self._code is None:
            waiting = select.poll()
            waiting.register(self._status, select.POLLIN)
            if waiting.poll(timeout_s * 1000):
                self._code = int(os.read(self._status, 16))
                os.close(self._status)
        return self._code


class _Template:
    """The template of this process, started with the first broker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None

    def fork(self, words: Sequence[str], environment: dict[str, str], stderr: int) -> Forked:
        out, stdout = os.pipe()
        ended, status = os.pipe()
        request = {"words": words, "environment": environment, "folder": str(Path.cwd())}
        with self._lock:
            if self._line is None:
                self._line = _start()
            socket.send_fds(self._line, [json.dumps(request).encode()], [stdout, stderr, status])
            os.close(stdout)
            os.close(status)
            return Forked(int(self._line.recv(16)), os.fdopen(out), ended)


def _start() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen([sys.executable, "-m", "tests.forked", str(theirs.fileno())], pass_fds=[theirs.fileno()])
    return ours


fork = _Template().fork


def _serve_forks(line: socket.socket) -> None:
    """Forks what is asked for until the line closes; returns in the forked processes too, which then serve."""
    ended_read, ended_write = os.pipe()
    os.set_blocking(ended_write, False)
    signal.set_wakeup_fd(ended_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, meant for the tests
    statuses: dict[int, int] = {}
    waiting = select.poll()
    waiting.register(line, select.POLLIN)
    waiting.register(ended_read, select.POLLIN)
    while True:
        for descriptor, _ in waiting.poll():
            if descriptor == ended_read:
                os.read(ended_read, 4096)
                _report_ended(statuses)
                continue
            asked, fds, _, _ = socket.recv_fds(line, _REQUEST_MAX_BYTES, 3)
            if not asked:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                line.close()
                for unused in (ended_read, ended_write, *statuses.values(), fds.pop()):
                    os.close(unused)
                _become(json.loads(asked), *fds)
                return
            statuses[pid] = fds.pop()
            for fd in fds:
                os.close(fd)
            line.send(b"%d" % pid)


def _report_ended(statuses: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            status = statuses.pop(found[0])
            with contextlib.suppress(BrokenPipeError):
                os.write(status, b"%d" % os.waitstatus_to_exitcode(found[1]))
            os.close(status)


def _become(request: dict[str, object], stdout: int, stderr: int) -> None:
    """Makes a forked process what a started one would be."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
        os.close(source)
    environment, words = request["environment"], request["words"]
    assert isinstance(environment, dict)
    assert isinstance(words, list)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["folder"]))
    random.seed()
    sys.argv = ["headrace", *words]


if __name__ == "__main__":
    from headrace.cli.main import load_command, main

    load_command("serve")
    import_module("headrace.cli.serve.node")  # the command imports it when it serves
    _serve_forks(socket.socket(fileno=int(sys.argv[1])))
    main()
