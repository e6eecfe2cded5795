"""Removes old records in the format `stream`, exactly, entry by entry.

The log start is stored before anything is removed, so a crash leaves too many entries, never a wrong error. It is right
after the last removed entry. With LogAppendTime the ids tell which records are too old; otherwise, and for retention by
size, the index does. The size of a compacted stream does not follow from what was written to it: there entries are
added up from the newest backwards, and again only after a tenth of the retained size has been written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.stream.ids import StreamId, parse_id
from headrace.store.stream.records import packed_bytes
from headrace.store.stream.walk import Pace, portions_back

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition

log = logging.getLogger(__name__)

_SLACK_SHARE = 10


class Measured(NamedTuple):
    """How large a compacted stream was when so much had been written to it: it has grown by no more than was since."""

    live_bytes: int
    written_bytes: int


async def delete_before(partition: StreamPartition, offset: int) -> None:
    """Makes `offset` the log start and frees the entries before it; OFFSET_OUT_OF_RANGE past the end."""
    await partition.confirm()
    if offset <= partition.log_start:
        return
    partition.check_offset(offset)
    await partition.save_start(offset)
    keys, link, last = partition.keys, partition.link, partition.ids.last
    first = await partition.rows_from(offset, 1)
    keep = first[0][0].decode() if first else str(last.next)  # not the last as it is now: that may just have come
    await link.call("XTRIM", keys.log, "MINID", "=", keep)
    await _forget_before(partition, offset)


async def _forget_before(partition: StreamPartition, offset: int) -> None:
    """Index and exceptions need not reach further back than the log."""
    keys, link = partition.keys, partition.link
    point = partition.index.forget_before(offset)
    if point is not None:
        await link.call("XTRIM", keys.index, "MINID", "=", f"{point}-0")
    exceptional = partition.ids.forget_before(offset)
    if exceptional is not None:
        await link.call("XTRIM", keys.exceptions, "MINID", "=", str(exceptional))


async def enforce_retention(partition: StreamPartition, retention_ms: int, retention_bytes: int) -> None:
    """Applies retention; also notes entries that Redis code removed."""
    await partition.confirm()
    earliest = await partition.find_earliest()
    await _forget_before(partition, earliest)
    before = partition.log_start
    start = await _expired_start(partition, retention_ms, retention_bytes)
    if start > before:
        await delete_before(partition, start)
        log.info(
            "old records removed",
            extra={"partition": repr(partition), "from_offset": before, "to_offset": partition.log_start},
        )
    await partition.save_producers()


async def _expired_start(partition: StreamPartition, retention_ms: int, retention_bytes: int) -> int:
    """The log start that retention asks for: right behind the last entry that it does not keep."""
    start, index = partition.log_start, partition.index
    if retention_ms >= 0:
        cutoff_ms = max(partition.now_ms() - retention_ms, 0)
        if partition.policy.log_append_time:
            start = max(start, await _behind_last_until(partition, StreamId(cutoff_ms, 0)))
        elif (expired := index.expired_by_time(cutoff_ms, partition.end)) == partition.end:
            start = expired
        elif expired is not None:
            start = max(start, await _behind_last_before(partition, expired))
    if retention_bytes >= 0:
        is_compacted = partition.policy.compacts
        expired = await _measure(partition, retention_bytes) if is_compacted else index.expired_by_size(retention_bytes)
        if expired is not None:
            start = max(start, await _behind_last_before(partition, expired))
    return min(start, partition.end)


async def _measure(partition: StreamPartition, keep_bytes: int) -> int | None:
    """The highest offset from which on at least so many bytes remain; None if less is there, or not much more."""
    written_bytes = partition.index.size_bytes
    before = partition.measured
    at_most = partition.size_bytes if before is None else before.live_bytes + written_bytes - before.written_bytes
    if at_most <= keep_bytes + keep_bytes // _SLACK_SHARE:
        return None
    live_bytes = 0
    async for rows in portions_back(partition.reads, partition.keys.log, pace=Pace()):
        for row in rows:
            live_bytes += packed_bytes(row[1])
            if live_bytes >= keep_bytes:
                partition.measured = Measured(live_bytes, written_bytes)
                return partition.ids.offset_of(parse_id(row[0]))
    partition.measured = Measured(live_bytes, written_bytes)
    return None


async def _behind_last_until(partition: StreamPartition, bound: StreamId) -> int:
    if bound.ms <= 0:
        return 0
    rows = await partition.link.call("XREVRANGE", partition.keys.log, f"({bound}", "-", "COUNT", 1)
    return partition.ids.offset_of(parse_id(rows[0][0])) + 1 if rows else 0


async def _behind_last_before(partition: StreamPartition, offset: int) -> int:
    last = await partition.last_before(offset)
    return partition.ids.offset_of(last) + 1 if last is not None else 0
