"""An archive that kills itself with SIGKILL at a step.

`python -m tests.lake.killed_archive ADDRESS LAKE TOPIC STEP`
"""

from __future__ import annotations

import os
import signal
import sys

from headrace.client import Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.session import spark_session
from headrace.lake.storage.place import place_of


def main(address: str, lake: str, topic: str, step: str) -> None:
    def kill(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with spark_session() as spark, Cluster(address) as cluster:
        Archive(spark, cluster, ArchiveSettings(place_of(lake), [topic]), at_step=kill).run_once()


if __name__ == "__main__":
    main(*sys.argv[1:])
