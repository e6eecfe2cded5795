"""A replay that kills itself with SIGKILL once it has read so many rows: some of them sent, some under way, some not.

`python -m tests.lake.killed_replay ADDRESS LAKE TOPIC INTO ROWS`
"""

from __future__ import annotations

import os
import signal
import sys

from headrace.client import Cluster
from headrace.lake.replay.replay import Replay, ReplaySettings
from headrace.lake.replay.target import find_target
from headrace.lake.storage.place import place_of
from headrace.lake.table.names import folder_of
from headrace.lake.table.table import TopicTable


def main(address: str, lake: str, topic: str, into: str, rows: str) -> None:
    def kill(phase: str, done: int, total: int) -> None:
        if phase == "sending" and done >= int(rows):
            os.kill(os.getpid(), signal.SIGKILL)

    table = TopicTable(place_of(lake) / folder_of(topic))
    with Cluster(address) as cluster:
        target = find_target(cluster, table, into)
        Replay(table, cluster, target, ReplaySettings(compression="lz4"), progress=kill).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
