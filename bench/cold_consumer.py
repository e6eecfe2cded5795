"""A consumer that reads a topic over and over until it is ended; then it prints how many bytes came.

`python -m bench.cold_consumer ADDRESS TOPIC END SHARE BYTES_PER_SECOND` starts at that fraction of the offsets below
END, and reads as fast as it is served, or at a rate. It looks at no record and runs at the lowest priority: a real one
has a machine of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import NoReturn

from headrace.client import Cluster, Reader
from headrace.wire.batch import read_header


def main() -> None:
    address, topic, end, share, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    os.nice(19)
    signal.signal(signal.SIGTERM, _leave)
    with Cluster(address) as cluster:
        reader = Reader(cluster, max_bytes=1 << 20)
        position, came_bytes, began_s = int(end * share), 0, 0.0
        try:
            while True:
                batches = reader.fetch_raw(topic, 0, position).batches
                position = read_header(batches[-1]).next_offset if batches else position
                if position >= end:
                    position = 0
                if not began_s:
                    began_s = time.monotonic()
                    print("ready", flush=True)
                    continue
                came_bytes += sum(map(len, batches))
                if rate:
                    time.sleep(max(0.0, began_s + came_bytes / rate - time.monotonic()))
        finally:
            print(came_bytes, flush=True)


def _leave(*_: object) -> NoReturn:
    sys.exit()


if __name__ == "__main__":
    main()
