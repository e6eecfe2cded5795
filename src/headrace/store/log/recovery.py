"""Reconciles a partition with the store, and restores records that the store lost.

If another server answers, the store may have gone back in time: acknowledged entries that are missing are appended
again from the tail cache, same ids, same bytes. What cannot be restored leaves a gap (`losses.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from headrace.store.log.compacting.state import parse_state
from headrace.store.log.entries import parse_entry, xadd
from headrace.store.log.other_history import compare, find_replaced
from headrace.store.log.times import is_slow, newest_of
from headrace.store.partition import losses
from headrace.store.partition.entries import LAST_SEQUENCE as LAST
from headrace.store.partition.entries import NO_OFFSET, Entry, base_of, entry_fields
from headrace.store.partition.losses import Gap, record_gap
from headrace.store.partition.sequences.aborted import AbortedList
from headrace.store.partition.sequences.aborted import parse as parse_aborted
from headrace.store.redis.errors import PartitionGone, RedisError, StoreAway
from headrace.wire.batch_errors import BatchError

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

log = logging.getLogger(__name__)

_LOST_END_MARGIN = 1_000_000
"""Distance from the last trace of a lost log to the next offset: more than an index interval can have."""
_MOST_RECORDS_PER_MS = 1000
"""No partition takes more: bounds the end of a log that left no trace at all."""
_READ_COUNT = 16


# -- the first look -------------------------------------------------------------------------------------------------


async def load(partition: LogPartition) -> None:
    """Loads a partition: meta, index, producers, and the log behind the last snapshot."""
    await _load(partition)
    while not await partition.clean.is_current():
        await _load(partition)  # what was to be read may have been compacted meanwhile
    if partition.clean.is_lost and partition.local_start < partition.clean.end:
        await record_gap(partition, partition.local_start, partition.clean.end)
        await partition.save_start(partition.clean.end)
    await partition.writer.look_up()


async def _load(partition: LogPartition) -> None:
    partition.forget()
    link, keys = partition.link, partition.keys
    exists, has_index, facts, producers, points, aborted = await link.pipeline(
        ("EXISTS", keys.log),
        ("EXISTS", keys.index),
        ("HMGET", keys.meta, *losses.FIELDS),
        ("HGET", keys.producers, "state"),
        ("XRANGE", keys.index, "-", "+"),
        ("XRANGE", keys.aborted, "-", "+"),
    )
    meta = losses.parse(facts)
    losses.adopt(partition, meta)
    partition.index.load((base_of(row), entry_fields(row)) for row in points)
    rows = (parse_aborted(base_of(row), entry_fields(row)[b"t"]) for row in aborted)
    covered = partition.producers.load(producers, AbortedList(rows))
    await partition.clean.load()
    if not exists:
        partition.end = _lost_end(partition, covered, meta.is_there)
        await _rebuild(partition)
        partition.lake_end.loaded(was_there=False)
        return
    if not has_index:
        await partition.make_again(0)
    await _read_on(partition, covered)
    partition.end = max(partition.end, partition.local_start, partition.clean.end, covered)
    partition.end = partition.read_end = max(partition.end, partition.floor)
    partition.snapshot_size_bytes = partition.index.size_bytes
    losses.adopt_catalogue_epoch(partition)
    partition.lake_end.loaded(was_there=True)


async def _read_on(partition: LogPartition, covered: int) -> None:
    """Reads the entries behind the last index point and behind the producers' snapshot."""
    index = partition.index
    indexed = index.offsets[-1] if len(index) else 0
    async for entries in partition.walk(max(min(indexed, covered), partition.clean.end)):
        for entry in entries:
            partition.take_in_producers(entry, covered)
            if entry.base >= indexed:
                newest = await asyncio.to_thread(newest_of, entry) if is_slow(entry) else newest_of(entry)
                partition.add_to_index(entry, newest)
            partition.last_base, partition.end = entry.base, entry.end


def _lost_end(partition: LogPartition, covered: int, has_meta: bool) -> int:
    """An end for a log that is not there: behind every offset that it can have given out."""
    index = partition.index
    if has_meta and (len(index) or covered or partition.floor):
        known = (covered, partition.floor, partition.local_start, partition.clean.end)
        traces = (*known, index.offsets[-1] if len(index) else 0)
        return max(traces) + _LOST_END_MARGIN
    return end_without_trace(partition)


def end_without_trace(partition: LogPartition) -> int:
    """An end that a log cannot have reached before, however much was written to it."""
    age_ms = partition.now_ms() - partition.topic.created_ms
    return max(age_ms, 1) * _MOST_RECORDS_PER_MS


# -- every other look -----------------------------------------------------------------------------------------------


async def catch_up(partition: LogPartition) -> None:
    """Reads entries that others appended, or that we appended without seeing the reply."""
    link, keys = partition.link, partition.keys
    end = partition.end
    while True:
        after = f"({partition.last_base}-{LAST}" if partition.last_base >= 0 else "-"
        exists, rows, facts, clean = await link.pipeline(
            ("EXISTS", keys.log),
            ("XRANGE", keys.log, after, "+", "COUNT", _READ_COUNT),
            ("HMGET", keys.meta, *losses.FIELDS),
            ("HGET", keys.meta, "clean"),  # the last of them: what the rows lack is below it
        )
        if not exists:
            await _rebuild(partition)
            break
        if await _is_compacted_unseen(partition, clean):
            await load(partition)
            break
        for row in rows:
            _take_in(partition, row)
        if len(rows) < _READ_COUNT:
            losses.adopt(partition, losses.parse(facts))
            partition.end = max(partition.end, partition.floor)
            break
    if partition.end != end:
        partition.tell_watchers()


async def _is_compacted_unseen(partition: LogPartition, stored: bytes | None) -> bool:
    """Whether another node compacted entries that this one has not seen: their producers are in the snapshot alone."""
    clean = partition.clean
    if (stored or b"") == clean.stored:
        return False
    is_seen = clean.end <= parse_state(stored).end <= partition.end
    await clean.load()
    return not is_seen or clean.end > partition.end


async def go_behind_last_id(partition: LogPartition) -> None:
    """Skips ids that the server refuses although no entry has them: entries were removed by hand.

    How many records the last of them had nobody knows.
    """
    reply = await partition.link.call("XINFO", "STREAM", partition.keys.log)
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    last = int(facts[b"last-generated-id"].split(b"-")[0])
    if last >= partition.end:
        end = last + _LOST_END_MARGIN
        await record_gap(partition, partition.end, end)
        partition.end = end


async def go_behind_lost(partition: LogPartition) -> None:
    """Skips offsets that the log may have given out behind its end; a log never written to still begins at 0."""
    if not await losses.has_margin(partition):
        end = partition.end
        await losses.leave_margin(partition, end, end + _LOST_END_MARGIN if end else 0)
    partition.end = max(partition.end, partition.floor)
    await raise_last_id(partition)


def _take_in(partition: LogPartition, row: Any) -> None:
    if base_of(row) <= partition.last_base:
        return  # an append of ours was answered while this was on its way
    if base_of(row) != partition.end:
        partition.mirrors.forget()  # what came before it may have been trimmed unseen
    entry = parse_entry(row)
    if entry is not None and partition.writer.seen(entry):
        return
    try:
        if entry is not None:
            partition.adopt(entry)
            partition.read_end = partition.end
            return
    except BatchError:
        pass
    partition.mirrors.forget()
    partition.last_base = base_of(row)
    partition.end = partition.read_end = max(partition.end, partition.last_base + 1)
    log.error("skipped an entry that no broker wrote", extra={"partition": repr(partition), "id": row[0].decode()})


# -- another server -------------------------------------------------------------------------------------------------


async def recover(partition: LogPartition) -> None:
    """Compares the last entry with the last acknowledged one; appends again what is missing."""
    link, keys, timeline = partition.link, partition.keys, partition.link.timeline
    exists, newest, facts = await link.pipeline(
        ("EXISTS", keys.log),
        ("XREVRANGE", keys.log, "+", "-", "COUNT", 1),
        ("HMGET", keys.meta, *losses.FIELDS),
    )
    if not exists:
        await _rebuild(partition)
        return
    store_base = base_of(newest[0]) if newest else NO_OFFSET
    if (ours := await find_replaced(partition, store_base)) is not None:
        await _take_other_history(partition, ours)
        return
    if store_base < partition.last_base:
        last = parse_entry(newest[0]) if newest else None
        store_end = last.end if last else max(store_base + 1, partition.local_start)
        await _restore(partition, store_base, store_end, timeline)
    is_news = not set(losses.parse(facts).gaps) <= set(partition.gaps)
    await _restore_side_keys(partition, with_producers=not is_news)
    if is_news or not await partition.clean.is_current():
        # Another node noted records as lost that this one counts as its producers' last. Or compaction went back too:
        # what was below its border is in the log again.
        await load(partition)


async def _take_other_history(partition: LogPartition, ours: Entry) -> None:
    """Another writer reused offsets that were given out: the store's history is the truth now, and read again."""
    other = await compare(partition, ours)
    await losses.note_replaced(partition, other.replaced)
    if not other.missing or other.end > partition.end:
        # The epoch rises behind all that is there: what was written meanwhile has an older one.
        await losses.go_behind(partition, other.replaced.start, max(other.end, partition.end))
    await losses.record_gaps(partition, other.missing)
    await load(partition)
    await raise_last_id(partition)


async def _restore(partition: LogPartition, store_base: int, store_end: int, timeline: int) -> None:
    """Appends the acknowledged entries that the store does not have, from the cache; the rest is a gap.

    Where the log ends was read on a timeline: on another one the entries before these may be missing, too.
    """
    missing = [entry for entry in partition.tail.since(store_base) if entry.base > store_base]
    restored_from = missing[0].base if missing else partition.end
    if restored_from > store_end:
        await partition.lake_end.keep(store_end, restored_from)
        await losses.give_up(partition, [Gap(store_end, restored_from)])
    for entry in missing:
        if not await _append_again(partition, entry, timeline):
            await _take_other_history(partition, entry)
            return
    if not missing:
        await raise_last_id(partition)
        return
    log.warning(
        "entries lost by the store were appended again",
        extra={"partition": repr(partition), "entries": len(missing), "from_offset": restored_from},
    )
    partition.count_event("restored_entries", len(missing))


async def remake_rest(partition: LogPartition) -> None:
    """Goes on where a node stopped that made the log again: the floor says how far it went."""
    timeline = partition.link.timeline
    newest = await partition.link.call("XREVRANGE", partition.keys.log, "+", "-", "COUNT", 1)
    last = parse_entry(newest[0]) if newest else None
    store_base = base_of(newest[0]) if newest else partition.clean.end - 1
    behind = last.end if last else store_base + 1
    if behind < partition.end:
        store_end = max(behind, partition.local_start, partition.clean.end)
        await _restore(partition, store_base, store_end, timeline)
    await _restore_side_keys(partition)


async def _append_again(partition: LogPartition, entry: Entry, timeline: int) -> bool:
    """Whether the entry is in its place now. One by one: should one be refused, the next must not go in."""
    link, key = partition.link, partition.keys.log
    if link.timeline != timeline:
        raise StoreAway("another server answers")
    try:
        if await link.send_chunks(xadd(key, entry)) is None:
            raise PartitionGone(repr(partition))
    except RedisError as error:
        if not error.is_refused_id:
            raise
        return await has_entry(partition, entry)  # another node was faster with the same one
    return True


async def has_entry(partition: LogPartition, entry: Entry) -> bool:
    """Whether an append is in the log."""
    rows = await partition.link.call("XRANGE", partition.keys.log, f"{entry.base}-1", f"{entry.base}-1")
    found = parse_entry(rows[0]) if rows else None
    return found is not None and found.token == entry.token


async def _restore_side_keys(partition: LogPartition, *, with_producers: bool = True) -> None:
    """Log start, index, producers and losses may have gone back too."""
    link, keys, index = partition.link, partition.keys, partition.index
    await partition.save_start(partition.log_start)
    if partition.trimmed_to:
        await partition.save_local_start(partition.trimmed_to)
    await losses.save_again(partition)
    partition.lake_end.recovered()
    newest = await link.call("XREVRANGE", keys.index, "+", "-", "COUNT", 1)
    stored = base_of(newest[0]) if newest else NO_OFFSET
    for at in range(len(index)):
        if index.offsets[at] > stored:
            partition.store_point(index.point(at))
    partition.producers.aborted.store_again()
    if with_producers:
        await partition.save_producers()


async def raise_last_id(partition: LogPartition) -> None:
    """So that no other node can append below the end either."""
    if partition.end <= 0:
        return
    try:
        await partition.link.call("XSETID", partition.keys.log, f"{partition.end - 1}-1")
    except RedisError as error:
        if "no such key" in str(error):
            raise PartitionGone(repr(partition)) from None
        if "smaller" not in str(error):
            raise


async def _rebuild(partition: LogPartition) -> None:
    """Recreates the stream and fills it from the cache."""
    async with partition.remaking() as end:
        partition.mirrors.forget()
        timeline = partition.link.timeline
        await partition.clean.load()  # it may be there still
        below = partition.clean.end - 1
        first = next((entry.base for entry in partition.tail.since(below) if entry.base > below), end)
        lost_from = max(partition.local_start, partition.clean.end)
        await _restore(partition, below, min(lost_from, first), timeline)
        if partition.local_start < partition.clean.end:
            pass  # the log starts where it did
        elif partition.policy.is_tiered or partition.log_start < partition.trimmed_to:
            await partition.save_local_start(max(lost_from, first))  # what the lake has of it is not lost
        else:
            partition.log_start = max(partition.log_start, lost_from, first)
        if end > partition.end:
            await partition.lake_end.keep(partition.end, end)
            await record_gap(partition, partition.end, end)
            partition.end = end
            await raise_last_id(partition)
        await _restore_side_keys(partition)
