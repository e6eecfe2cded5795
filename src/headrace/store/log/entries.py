"""Entries of the format `log` in Redis: whole batches and the token of their writer."""

from __future__ import annotations

from typing import Any

from headrace.store.partition.entries import Entry, base_of, entry_fields
from headrace.wire import batch as batches
from headrace.wire.records import NO_TIMESTAMP
from headrace.wire.schema import Buffer


def xadd(key: str, entry: Entry) -> list[Buffer]:
    """The append as it goes to Redis, packed by hand so that the batches are not copied once more."""
    name = key.encode()
    identity = b"%d-1" % entry.base
    timed = entry.append_time != NO_TIMESTAMP
    head = b"*%d\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$10\r\nNOMKSTREAM\r\n$%d\r\n%b\r\n$1\r\nb\r\n$%d\r\n" % (
        10 if timed else 8, len(name), name, len(identity), identity, len(entry.data),
    )  # fmt: skip
    tail = b"\r\n$1\r\nw\r\n$%d\r\n%b\r\n" % (len(entry.token), entry.token)
    if timed:
        time = b"%d" % entry.append_time
        tail += b"$1\r\nt\r\n$%d\r\n%b\r\n" % (len(time), time)
    return [head, entry.data, tail]


def parse_entry(row: Any) -> Entry | None:
    """An entry as XRANGE returns it; None if it was not written by a broker."""
    values = entry_fields(row)
    data = values.get(b"b")
    if data is None:
        return None
    try:
        end, append_time = batches.end_offset(data), int(values.get(b"t", NO_TIMESTAMP))
        return Entry(base_of(row), end, data, values.get(b"w", b""), append_time)
    except ValueError:
        return None
