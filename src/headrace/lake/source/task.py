"""A task of a query: reads its range of offsets as rows.

Rule kept here: the range existed when it was planned, so each record arrives, once and in order, or the reader is told
that it was lost (`DataLost`), unless it chose to continue without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

import pyarrow as pa

from headrace.client import Cluster
from headrace.lake.fetching import FETCH_BYTES, OffsetRange, fetch_range
from headrace.lake.records.decode import decode
from headrace.lake.source.losses import Losses


def read_range(
    connect: Callable[[], Cluster],
    wanted: OffsetRange,
    *,
    fail_on_data_loss: bool = True,
    read_committed: bool = True,
    headers: bool = True,
    fetch_bytes: int = FETCH_BYTES,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a range, as from `decode`. `connect` opens the cluster, which is closed at the end."""
    losses = Losses(are_errors=fail_on_data_loss)
    with (
        connect() as cluster,
        closing(
            fetch_range(cluster, wanted, losses, read_committed=read_committed, fetch_bytes=fetch_bytes)
        ) as portions,
    ):
        for portion in portions:
            yield from decode(
                portion.fetched.batches,
                topic=wanted.topic,
                partition=wanted.partition,
                first_offset=portion.start,
                stop_offset=portion.stop,
                aborted=portion.fetched.aborted,
                headers=headers,
            )
