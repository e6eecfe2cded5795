"""An archive that follows its topics as the command does, with short rounds, until SIGTERM, or until it is killed.

`python -m tests.lake.following_archive ADDRESS LAKE [TOPIC...]`; without a topic those that join by their config.
"""

from __future__ import annotations

import signal
import sys
import threading

from headrace.cli.lake.progress import ArchiveProgress
from headrace.client import Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.jobs import SparkJobs
from headrace.lake.session import own_spark
from headrace.lake.storage.place import place_of
from tests.lake.steady_load import COMMIT_EVERY_S


def main(address: str, lake: str, *topics: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ArchiveProgress() as shown, own_spark() as spark, Cluster(address) as cluster:
        settings = ArchiveSettings(place_of(lake), topics, commit_every_s=COMMIT_EVERY_S)
        jobs = SparkJobs(spark, shown.say)
        Archive(jobs, cluster, settings, say=shown.say, progress=shown.round).run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
