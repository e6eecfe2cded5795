"""A process that is started on a core stays there, and the thread that started it gets its cores back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from bench.cores import on_core, two_cores


def test_what_is_started_on_a_core_stays_on_it() -> None:
    cores = two_cores()
    if cores is None:
        pytest.skip("this machine has one core")
    before = os.sched_getaffinity(0)
    command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    with on_core(cores.servers):
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(cores.servers)]
    assert os.sched_getaffinity(0) == before
    assert cores.servers != cores.clients
