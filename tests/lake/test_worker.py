"""What a Spark worker does between its tasks."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.conftest import environment

_THREE_TASKS = """
import gc
from headrace.lake.worker import run_task

class Cycle:
    pass

def task(content):
    made = Cycle()
    made.itself = made
    return content + str(gc.get_freeze_count()).encode()

first, second, third = (run_task("0a0b0c0d", task, b"") for _ in range(3))
assert first == b"0", first
assert int(second) > 10_000, second
assert third == second, (second, third)
gc.collect()
assert not any(isinstance(one, Cycle) for one in gc.get_objects())
"""


def test_what_is_loaded_is_not_collected_again_after_every_task_and_what_tasks_leave_is() -> None:
    subprocess.run([sys.executable, "-c", _THREE_TASKS], check=True, env=environment())
