"""The command, against the broker that a worker's tests share.

Most tests run it inside their own process, which costs a tenth; what is about standard input, pipes and signals runs it
as a process of its own, as a user does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from headrace.cli.main import main
from tests.broker_process import BrokerProcess

COMMAND = [sys.executable, "-c", "from headrace.cli.main import main; main(prog_name='headrace')"]
TIMEOUT_S = 60


class Ran(msgspec.Struct):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def table(self) -> list[list[str]]:
        """The words of each line but the headings."""
        return [line.split() for line in self.out.splitlines()[1:]]

    def sentence(self, code: int = 1) -> str:
        """The one sentence of a command that failed."""
        assert self.code == code, self
        assert "Traceback" not in self.err
        last = self.err.splitlines()[-1]
        assert last.startswith("Error: "), self.err
        if code == 1:
            assert self.err.count("\n") == 1, self.err
        return last.removeprefix("Error: ")


Run = Callable[..., Ran]


def environment(**changes: str) -> dict[str, str]:
    """Ours without settings of headrace's own."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")} | changes


def run_command(*arguments: object, **environ: str) -> Ran:
    """Runs `headrace` to its end, in this process."""
    env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("HEADRACE_")}
    env.update(environ)
    result = CliRunner().invoke(main, [str(a) for a in arguments], env=env, prog_name="headrace")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def run_process(*arguments: object, stdin: str | bytes = "", **environ: str) -> Ran:
    """Runs `headrace` to its end, as a process of its own."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment(**environ),
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """Runs a command against the shared broker; it is expected to succeed unless `fails` is given."""

    def with_broker(*arguments: object, stdin: str | bytes | None = None, fails: bool = False) -> Ran:
        if stdin is None:
            ran = run_command(*arguments, HEADRACE_BOOTSTRAP=broker.address)
        else:
            ran = run_process(*arguments, stdin=stdin, HEADRACE_BOOTSTRAP=broker.address)
        assert fails or ran.code == 0, ran.err
        return ran

    return with_broker
