"""Removes old records: by time, by size, or on a client's request.

The log start is stored separately: it may lie inside an entry and may equal the end. It is written before anything is
removed, so a crash leaves too much, never a hole. The last entry is never removed, because it marks the end of the log.
The index tells which records are old; the log itself is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.store.partition.entries import LAST_SEQUENCE, base_of

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition


async def delete_before(partition: LogPartition, offset: int) -> None:
    """Makes `offset` the log start and frees the entries wholly before it; OFFSET_OUT_OF_RANGE past the end."""
    await partition.confirm()
    if offset <= partition.log_start:
        return
    partition.check_offset(offset)
    if offset <= partition.local_start:
        await partition.save_start(offset)  # what lies before is not in Redis
        return
    await partition.save_producers()  # what it counts may be removed now
    await partition.save_start(offset)
    await free_before(partition, offset)


async def free_before(partition: LogPartition, offset: int) -> None:
    """Removes the entries wholly before an offset, once it is stored that they are not to be read from here."""
    keys, link = partition.keys, partition.link
    await partition.clean.free_before(offset)
    holding = await partition.reads.call("XREVRANGE", keys.log, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1)
    if not holding:
        return
    keep = min(base_of(holding[0]), partition.last_base)
    first_point = partition.index.forget_before(keep)
    await link.call("XTRIM", keys.log, "MINID", "=", f"{keep}-0")
    if len(partition.producers.aborted):
        partition.producers.aborted.forget_before(keep)
        await link.call("XTRIM", keys.aborted, "MINID", "=", f"{keep}-0")
    if first_point is not None:
        await link.call("XTRIM", keys.index, "MINID", "=", f"{first_point}-0")


def expired_start(partition: LogPartition, now_ms: int, retention_ms: int, retention_bytes: int) -> int:
    """The local start by these limits; the current one if no record is too old."""
    index, start, clean = partition.index, partition.local_start, partition.clean
    if retention_ms >= 0:
        cutoff_ms = now_ms - retention_ms
        expired = clean.index.expired_by_time(cutoff_ms, clean.end) if len(clean.index) else clean.end
        if expired == clean.end:
            expired = index.expired_by_time(cutoff_ms, partition.end) or expired
        start = start if expired is None else max(start, expired)
    if retention_bytes >= 0:
        clean_bytes = retention_bytes - index.bytes_since(clean.end)
        if clean_bytes > 0 and len(clean.index):
            expired = clean.index.expired_by_size(clean_bytes)
        else:
            expired = index.expired_by_size(retention_bytes)
        start = start if expired is None else max(start, expired)
    return min(start, partition.end)
