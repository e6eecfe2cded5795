"""Finding out what is in the store, and making good what it lost: the parts of a partition's look.

If the server is another one than before, the store may have gone back in time: entries that were acknowledged and are
missing are appended again from the tail cache, same ids, same bytes. What cannot be restored leaves a gap
(`losses.py`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.store import losses
from headrace.store.entries import LAST_SEQUENCE as LAST
from headrace.store.entries import NO_OFFSET, Entry, base_of, parse_entry, xadd
from headrace.store.errors import PartitionGone, RedisError
from headrace.store.losses import record_gap
from headrace.wire.batch import BatchError

if TYPE_CHECKING:
    from headrace.store.partition import Partition

log = logging.getLogger(__name__)

_LOST_END_MARGIN = 1_000_000
"""How far behind the last trace of a lost log the next offset lies: more than an index interval holds."""
_MOST_RECORDS_PER_MS = 1000
"""No partition takes more: bounds the end of a log that left no trace at all."""
_READ_COUNT = 16
_LAKE_END_FIELDS = ("asked", "left")


# -- the first look -------------------------------------------------------------------------------------------------


async def load(partition: Partition) -> None:
    """Reads what the store knows of a partition: meta, index, producers, and the log behind the last of them."""
    partition.forget()
    link, keys = partition.store.link, partition.keys
    exists, has_index, facts, producers, points, lake_end = await link.pipeline(
        ("EXISTS", keys.log),
        ("EXISTS", keys.index),
        ("HMGET", keys.meta, *losses.FIELDS),
        ("HGET", keys.producers, "state"),
        ("XRANGE", keys.index, "-", "+"),
        ("HMGET", keys.meta, *_LAKE_END_FIELDS),
    )
    meta = losses.parse(facts)
    losses.adopt(partition, meta)
    partition.index.load([(base_of(row), row[1][1]) for row in points])
    covered = partition.producers.load(producers)
    if not exists:
        partition.end = _lost_end(partition, covered, meta.is_there)
        await _rebuild(partition)
        await partition.lake_end.loaded(*lake_end, was_there=False)
        return
    if not has_index:
        await partition.make_again(0)
    await _read_on(partition, covered)
    partition.end = max(partition.end, partition.local_start, covered)
    partition.end = max(partition.end, partition.floor)
    partition.snapshot_size_bytes = partition.index.size_bytes
    losses.adopt_catalogue_epoch(partition)
    await partition.lake_end.loaded(*lake_end, was_there=True)


async def _read_on(partition: Partition, covered: int) -> None:
    """Reads the entries behind the last index point and behind the producers' snapshot."""
    index, producers, now_ms = partition.index, partition.producers, partition.store.now_ms()
    indexed = index.offsets[-1] if len(index) else 0
    async for entries in partition.walk(min(indexed, covered)):
        for entry in entries:
            max_timestamp = -1
            for header in entry.headers():
                max_timestamp = max(max_timestamp, header.max_timestamp)
                if header.base_offset >= covered:
                    producers.add(header, header.base_offset, now_ms)
            if entry.base >= indexed and (point := index.add_entry(entry.base, len(entry.data), max_timestamp)):
                partition.store_point(point)
            partition.last_base, partition.end = entry.base, entry.end


def _lost_end(partition: Partition, covered: int, has_meta: bool) -> int:
    """An end for a log that is not there: behind every offset that it can have given out."""
    index = partition.index
    if has_meta and (len(index) or covered or partition.floor):
        traces = (covered, partition.floor, partition.local_start, index.offsets[-1] if len(index) else 0)
        return max(traces) + _LOST_END_MARGIN
    age_ms = partition.store.now_ms() - partition.topic.created_ms
    return max(age_ms, 1) * _MOST_RECORDS_PER_MS


# -- every other look -----------------------------------------------------------------------------------------------


async def catch_up(partition: Partition) -> None:
    """Takes in what somebody else appended, or what we did without learning of it."""
    link, keys = partition.store.link, partition.keys
    end = partition.end
    while True:
        after = f"({partition.last_base}-{LAST}" if partition.last_base >= 0 else "-"
        exists, facts, rows = await link.pipeline(
            ("EXISTS", keys.log),
            ("HMGET", keys.meta, *losses.FIELDS),
            ("XRANGE", keys.log, after, "+", "COUNT", _READ_COUNT),
        )
        if not exists:
            await _rebuild(partition)
            break
        for row in rows:
            _take_in(partition, row)
        if len(rows) < _READ_COUNT:
            losses.adopt(partition, losses.parse(facts))
            partition.end = max(partition.end, partition.floor)
            break
    if partition.end != end:
        partition.tell_watchers()


async def go_behind_last_id(partition: Partition) -> None:
    """Leaves the ids behind that the server refuses although nothing has them: entries were removed by hand.

    How many records the last of them had nobody knows.
    """
    reply = await partition.store.link.call("XINFO", "STREAM", partition.keys.log)
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    last = int(facts[b"last-generated-id"].split(b"-")[0])
    if last >= partition.end:
        end = last + _LOST_END_MARGIN
        await record_gap(partition, partition.end, end)
        partition.end = end


def _take_in(partition: Partition, row: Any) -> None:
    if base_of(row) <= partition.last_base:
        return  # an append of ours was answered while this was on its way
    entry = parse_entry(row)
    if entry is not None and partition.writer.seen(entry):
        return
    try:
        if entry is not None:
            partition.adopt(entry)
            return
    except BatchError:
        pass
    partition.last_base = base_of(row)
    partition.end = max(partition.end, partition.last_base + 1)
    log.error("an entry that no broker wrote is skipped", extra={"partition": repr(partition), "id": row[0].decode()})


# -- another server -------------------------------------------------------------------------------------------------


async def recover(partition: Partition) -> None:
    """Compares the last entry with what was acknowledged before; appends again what is missing."""
    link, keys = partition.store.link, partition.keys
    exists, newest = await link.pipeline(("EXISTS", keys.log), ("XREVRANGE", keys.log, "+", "-", "COUNT", 1))
    if not exists:
        await _rebuild(partition)
        return
    store_base = base_of(newest[0]) if newest else NO_OFFSET
    if (ours := await _other_history(partition, store_base)) is not None:
        await _take_other_history(partition, ours)
        return
    if store_base < partition.last_base:
        last = parse_entry(newest[0]) if newest else None
        await _restore(partition, store_base, last.end if last else max(store_base + 1, partition.local_start))
    await _restore_side_keys(partition)


async def _other_history(partition: Partition, store_base: int) -> Entry | None:
    """Our entry in whose place the store has another one; None if its history is ours, as far as the cache tells."""
    shared, first = min(store_base, partition.last_base), partition.tail.first
    if first is None or shared < first.base:
        return None
    ours = next(partition.tail.since(shared))
    if ours.base != shared:
        return ours
    rows, starts = await partition.store.link.pipeline(
        ("XRANGE", partition.keys.log, f"{ours.base}-0", f"{ours.base}-{LAST}"),
        ("HMGET", partition.keys.meta, "start", "local"),
    )
    if not rows and max(int(start or 0) for start in starts) >= ours.end:
        return None  # another node trimmed it
    found = parse_entry(rows[0]) if rows else None
    return None if found is not None and found.token == ours.token else ours


async def _take_other_history(partition: Partition, ours: Entry) -> None:
    """Another writer reused offsets that were given out: the store's history is the truth now, and read again."""
    log.error("the store has another history than was acknowledged", extra={"partition": repr(partition)})
    await record_gap(partition, ours.base, partition.end)
    await load(partition)
    await raise_last_id(partition)


async def _restore(partition: Partition, store_base: int, store_end: int) -> None:
    """Appends the acknowledged entries that the store does not have, from the cache; the rest is a gap."""
    missing = [entry for entry in partition.tail.since(store_base) if entry.base > store_base]
    restored_from = missing[0].base if missing else partition.end
    if restored_from > store_end:
        await record_gap(partition, store_end, restored_from)
    for entry in missing:
        if not await _append_again(partition, entry):
            await _take_other_history(partition, entry)
            return
    if not missing:
        await raise_last_id(partition)
        return
    log.warning(
        "entries that the store had lost were appended again",
        extra={"partition": repr(partition), "entries": len(missing), "from_offset": restored_from},
    )
    partition.store.count_event("restored_entries", len(missing))


async def _append_again(partition: Partition, entry: Entry) -> bool:
    """Whether the entry is in its place now. One by one: should one be refused, the next must not go in."""
    link, key = partition.store.link, partition.keys.log
    try:
        if await link.send_chunks(xadd(key, entry)) is None:
            raise PartitionGone(repr(partition))
    except RedisError as error:
        if not error.is_refused_id:
            raise
        rows = await link.call("XRANGE", key, f"{entry.base}-1", f"{entry.base}-1")
        found = parse_entry(rows[0]) if rows else None
        return found is not None and found.token == entry.token  # another node was faster with the same entry
    return True


async def _restore_side_keys(partition: Partition) -> None:
    """Log start, index, producers and losses may have gone back too."""
    link, keys, index = partition.store.link, partition.keys, partition.index
    await partition.save_start(partition.log_start)
    if partition.trimmed_to:
        await partition.save_local_start(partition.trimmed_to)
    await partition.lake_end.recovered()
    await losses.save_again(partition)
    newest = await link.call("XREVRANGE", keys.index, "+", "-", "COUNT", 1)
    stored = base_of(newest[0]) if newest else NO_OFFSET
    for at in range(len(index)):
        if index.offsets[at] > stored:
            partition.store_point(index.point(at))
    await partition.save_producers()


async def raise_last_id(partition: Partition) -> None:
    """So that no other node can append below the end either."""
    if partition.end <= 0:
        return
    try:
        await partition.store.link.call("XSETID", partition.keys.log, f"{partition.end - 1}-1")
    except RedisError as error:
        if "no such key" in str(error):
            raise PartitionGone(repr(partition)) from None
        if "smaller" not in str(error):
            raise


async def _rebuild(partition: Partition) -> None:
    """Makes the stream again, and in it what the cache has."""
    async with partition.remaking():
        first = partition.tail.first.base if partition.tail.first else partition.end
        lost_from = partition.local_start
        await _restore(partition, NO_OFFSET, min(lost_from, first))
        if partition.is_tiered or partition.log_start < partition.trimmed_to:
            await partition.save_local_start(max(lost_from, first))  # what the lake has of it is not lost
        else:
            partition.log_start = max(lost_from, first)
        await _restore_side_keys(partition)
