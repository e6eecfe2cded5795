"""Open transactions as a table: partition, producer, first offset and time of the last write."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.cli.output import number, print_table, text
from headrace.cli.quantities import show_time
from headrace.client.transactions import OpenTransaction


def show_open(opened: Sequence[OpenTransaction]) -> None:
    """One row per partition and producer."""
    columns = [text("OPEN IN"), number("PARTITION"), number("PRODUCER ID"), number("EPOCH"), number("FIRST OFFSET")]
    rows = [
        (one.topic, one.partition, one.producer_id, one.producer_epoch, one.first_offset, age(one.last_ms))
        for one in opened
    ]
    print_table([*columns, text("LAST WRITE")], rows)


def age(since_ms: int) -> str:
    """`90s ago`, in whole seconds."""
    seconds = max(time.time_ns() // 1_000_000_000 - since_ms // 1000, 0)
    return f"{show_time(seconds * 1000)} ago"
