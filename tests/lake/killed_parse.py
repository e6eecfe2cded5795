"""Parsing for typed tables that kills itself with SIGKILL at a step.

`python -m tests.lake.killed_parse LAKE TOPIC STEP`
"""

from __future__ import annotations

import os
import signal
import sys

from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import tables_in
from headrace.lake.typed.update import Derivation


def main(lake: str, topic: str, step: str) -> None:
    def kill(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    (raw,) = tables_in(place_of(lake), [topic])
    Derivation(place_of(lake), at_step=kill).catch_up(raw)


if __name__ == "__main__":
    main(*sys.argv[1:])
