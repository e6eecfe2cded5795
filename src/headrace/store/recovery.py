"""Finding out what is in the store, and making good what it lost.

`open_partition` reads a partition for the first time; `look` is what a partition does after every sign of trouble.
If the server is another one than before (a restart, a fail-over), the store may have gone back in time: entries that
were acknowledged and are missing are appended again from the tail cache, same ids, same bytes. What cannot be
restored leaves a gap: its offsets are never used again, the producers concerned lose their state, the leader epoch
rises, and it is logged, counted and kept in the partition's meta for people to see.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.store.entries import NO_OFFSET, Entry, base_of, empty_stream, parse_entry, xadd
from headrace.store.errors import PartitionGone, RedisError

if TYPE_CHECKING:
    from headrace.store.partition import Partition

log = logging.getLogger(__name__)

_LOST_END_MARGIN = 1_000_000
"""How far behind the last trace of a lost log the next offset lies: more than an index interval can hold."""
_READ_COUNT = 64


class EpochStart(msgspec.Struct, frozen=True, array_like=True):
    """From which offset on a leader epoch writes."""

    epoch: int
    start: int


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """Offsets that were given out and whose records the store lost."""

    start: int
    end: int


async def open_partition(partition: Partition) -> None:
    """Reads what the store knows of a partition: meta, index, producers, and the log behind the last of them."""
    link, keys = partition.store.link, partition.keys
    partition.seen_timeline = link.timeline
    exists, meta, points, producers = await link.pipeline(
        ("EXISTS", keys.log),
        ("HGETALL", keys.meta),
        ("XRANGE", keys.index, "-", "+"),
        ("HGET", keys.producers, "state"),
    )
    facts = dict(zip(meta[::2], meta[1::2], strict=True))
    partition.log_start = int(facts.get(b"start", 0))
    if b"epochs" in facts:
        partition.epochs = msgspec.json.decode(facts[b"epochs"], type=list[EpochStart])
    partition.index.load([(base_of(row), row[1][1]) for row in points])
    covered = partition.producers.load(producers)
    floor = int(facts.get(b"floor", 0))
    if not exists:
        await _open_lost(partition, max(covered, floor))
        return
    await _read_on(partition, covered)
    partition.end = max(partition.end, floor, partition.log_start)
    partition.snapshot_size_bytes = partition.index.size_bytes
    await partition.confirm()


async def _read_on(partition: Partition, covered: int) -> None:
    """Reads the entries behind the last index point and behind the producers' snapshot."""
    index, producers = partition.index, partition.producers
    indexed = index.offsets[-1] if len(index) else 0
    async for entries in partition.walk(min(indexed, covered)):
        for entry in entries:
            max_timestamp = -1
            for header in entry.headers():
                max_timestamp = max(max_timestamp, header.max_timestamp)
                if header.base_offset >= covered:
                    producers.add(header, header.base_offset, partition.store.now_ms())
            if entry.base >= indexed and (point := index.add_entry(entry.base, len(entry.data), max_timestamp)):
                partition.store_point(point)
            partition.last_base, partition.end = entry.base, entry.end


async def look(partition: Partition) -> None:
    """Brings what is known of a partition up to what is in the store, and the store up to what was promised."""
    timeline = partition.store.link.timeline
    if partition.seen_timeline != timeline:
        await _after_another_server(partition)
        partition.seen_timeline = timeline
    await _catch_up(partition)


async def _catch_up(partition: Partition) -> None:
    """Takes in what somebody else appended, or what we did without learning of it."""
    link, key = partition.store.link, partition.keys.log
    moved = False
    while True:
        after = f"({partition.last_base}-1" if partition.last_base >= 0 else "-"
        exists, rows = await link.pipeline(("EXISTS", key), ("XRANGE", key, after, "+", "COUNT", _READ_COUNT))
        if not exists:
            await _rebuild(partition)
            return
        for row in rows:
            _take_in(partition, row)
            moved = True
        if len(rows) < _READ_COUNT:
            break
    if moved:
        partition.tell_watchers()


def _take_in(partition: Partition, row: Any) -> None:
    entry = parse_entry(row)
    if entry is None:
        partition.last_base = base_of(row)
        partition.end = max(partition.end, partition.last_base + 1)
        log.error(
            "an entry that no broker wrote is skipped", extra={"partition": repr(partition), "id": row[0].decode()}
        )
    elif not partition.writer.seen(entry):
        partition.adopt(entry)


async def _after_another_server(partition: Partition) -> None:
    """Compares the last entry with what was acknowledged before; appends again what is missing."""
    link, keys = partition.store.link, partition.keys
    exists, newest = await link.pipeline(("EXISTS", keys.log), ("XREVRANGE", keys.log, "+", "-", "COUNT", 1))
    if not exists:
        await _rebuild(partition)
        return
    store_base = base_of(newest[0]) if newest else NO_OFFSET
    if store_base >= partition.last_base:
        await _check_same_history(partition)
        return
    last = parse_entry(newest[0]) if newest else None
    await _restore(partition, store_base, last.end if last else max(store_base + 1, 0))


async def _check_same_history(partition: Partition) -> None:
    """Our last entry should still be ours: if another took its place, the store's history is the truth now."""
    if not partition.tail.entries:
        return
    ours = partition.tail.entries[-1]
    rows = await partition.store.link.call("XRANGE", partition.keys.log, f"{ours.base}-1", f"{ours.base}-1")
    found = parse_entry(rows[0]) if rows else None
    if found is not None and found.token == ours.token:
        return
    log.error("the store has another history than was acknowledged", extra={"partition": repr(partition)})
    partition.tail.clear()
    partition.producers.by_id.clear()
    await record_gap(partition, ours.base, partition.end)


async def _restore(partition: Partition, store_base: int, store_end: int) -> None:
    """Appends the acknowledged entries that the store does not have, from the cache; the rest is a gap."""
    missing = [entry for entry in partition.tail.entries if entry.base > store_base]
    for entry in missing:
        await _append_again(partition, entry)
    restored_from = missing[0].base if missing else partition.end
    if missing:
        log.warning(
            "entries that the store had lost were appended again",
            extra={"partition": repr(partition), "entries": len(missing), "from_offset": restored_from},
        )
        partition.store.count_event("restored_entries", len(missing))
    await _restore_side_keys(partition)
    if restored_from > store_end:
        await record_gap(partition, store_end, restored_from)


async def _append_again(partition: Partition, entry: Entry) -> None:
    try:
        reply = await partition.store.link.send_chunks(xadd(partition.keys.log, entry))
    except RedisError as error:
        if not error.is_refused_id:
            raise
        return  # another node was faster with the same entry
    if reply is None:
        raise PartitionGone(repr(partition))


async def _restore_side_keys(partition: Partition) -> None:
    """Log start, index and producers may have gone back too."""
    link, keys, index = partition.store.link, partition.keys, partition.index
    await partition.save_start(partition.log_start)
    newest = await link.call("XREVRANGE", keys.index, "+", "-", "COUNT", 1)
    stored = base_of(newest[0]) if newest else NO_OFFSET
    for at in range(len(index)):
        if index.offsets[at] > stored:
            partition.store_point(index.point(at))
    await partition.save_producers()


async def record_gap(partition: Partition, start: int, end: int) -> None:
    """Makes a loss durable and visible: no offset of it is used again, the epoch rises behind it."""
    link, keys = partition.store.link, partition.keys
    epoch = EpochStart(partition.leader_epoch + 1, end)
    partition.epochs.append(epoch)
    partition.producers.forget_between(start, end)
    known = await link.call("HGET", keys.meta, "gaps")
    gaps = [*(msgspec.json.decode(known, type=list[Gap]) if known else []), Gap(start, end)]
    await link.call(
        "HSET", keys.meta, "floor", partition.end,
        "epochs", msgspec.json.encode(partition.epochs), "gaps", msgspec.json.encode(gaps),
    )  # fmt: skip
    if partition.end > 0:
        await _raise_last_id(partition)
    await partition.save_producers()
    await partition.store.catalogue.set_epoch(partition.topic, partition.number, epoch.epoch)
    partition.store.count_event("gaps", 1)
    log.error(
        "acknowledged records were lost by the store: a gap stays in the log",
        extra={"partition": repr(partition), "from_offset": start, "to_offset": end, "leader_epoch": epoch.epoch},
    )


async def _raise_last_id(partition: Partition) -> None:
    """So that no other node can append below the end either."""
    try:
        await partition.store.link.call("XSETID", partition.keys.log, f"{partition.end - 1}-1")
    except RedisError as error:
        if "smaller" not in str(error):
            raise


async def _rebuild(partition: Partition) -> None:
    """The stream is not there. If the topic is, the store evicted or lost it: it is made again behind its old end."""
    catalogue = partition.store.catalogue
    await catalogue.load()
    if partition.topic.uuid not in catalogue.by_uuid:
        partition.is_gone = True
        partition.tail.clear()
        partition.tell_watchers()
        raise PartitionGone(repr(partition))
    await partition.store.link.pipeline(*empty_stream(partition.keys.log), *empty_stream(partition.keys.index))
    first = partition.tail.entries[0].base if partition.tail.entries else partition.end
    lost_from, partition.log_start = partition.log_start, max(partition.log_start, first)
    await _restore(partition, NO_OFFSET, min(lost_from, first))


async def _open_lost(partition: Partition, trace: int) -> None:
    """A stream that is not there at the first look: its end is unknown, so the next offset lies far behind."""
    index = partition.index
    trace = max(trace, partition.log_start, index.offsets[-1] if len(index) else 0)
    if trace > 0 or partition.epochs[-1].epoch > 0:
        trace += _LOST_END_MARGIN
    partition.end = trace
    await _rebuild(partition)
    await partition.confirm()
