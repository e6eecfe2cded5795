"""An archive that follows its topics, with short rounds, until it is killed.

`python -m tests.lake.following_archive ADDRESS LAKE [TOPIC]`; without a topic those that join by their config.
"""

from __future__ import annotations

import functools
import sys
import threading

from headrace.client import Cluster
from headrace.lake.archive import Archive, Settings
from headrace.lake.place import place_of
from headrace.lake.session import spark_session
from tests.lake.steady_load import COMMIT_EVERY_S


def main(address: str, lake: str, *topics: str) -> None:
    with spark_session() as spark, Cluster(address) as cluster:
        settings = Settings(place_of(lake), topics, commit_every_s=COMMIT_EVERY_S)
        Archive(spark, cluster, settings, say=functools.partial(print, flush=True)).run(threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
