"""A consumer that reads a tiered topic as fast as it is served, over and over, until it is killed.

`python -m bench.cold_consumer ADDRESS TOPIC SHARE` starts at that fraction of the cold records. It looks at no
record and runs at the lowest priority: a real one has a machine of its own.
"""

from __future__ import annotations

import os
import sys

from headrace.client import Admin, Cluster, Reader
from headrace.wire.batch import read_header
from headrace.wire.special_times import EARLIEST_LOCAL


def main() -> None:
    address, topic, share = sys.argv[1], sys.argv[2], float(sys.argv[3])
    os.nice(19)
    with Cluster(address) as cluster:
        end = Admin(cluster).list_offsets({(topic, 0): EARLIEST_LOCAL})[topic, 0].offset
        reader = Reader(cluster, max_bytes=1 << 20)
        position, is_ready = int(end * share), False
        while True:
            batches = reader.fetch_raw(topic, 0, position).batches
            position = read_header(batches[-1]).next_offset if batches else position
            if position >= end:
                position = 0
            if not is_ready:
                is_ready = True
                print("ready", flush=True)


if __name__ == "__main__":
    main()
