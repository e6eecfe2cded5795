"""Finding out what is in a stream, and making good what the store lost. `recovery.py` is the same for format `log`.

`look` reads what came since the last one and gives it offsets; exceptions to the mapping of ids are stored before
anything that needs them is given out. If the server is another one than before, the store may have gone back in time:
batches that the broker acknowledged and that are missing are appended again from the tail cache under their own ids,
as long as nothing was appended behind their place since. What cannot be restored leaves a gap (`losses.py`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.store import losses
from headrace.store.entries import Entry, base_of
from headrace.store.errors import PartitionGone, RedisError
from headrace.store.redis import Argument
from headrace.store.stream_ids import Exceptional, Reading, StreamId, parse_id
from headrace.store.stream_records import pack_entries
from headrace.wire.batch import read_header
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.store.stream_partition import StreamPartition

log = logging.getLogger(__name__)

_READ_COUNT_FIRST = 64
_READ_COUNT_MOST = 2_048
_READ_BYTES = 256 << 10
_UNSEEN = -1


async def look(partition: StreamPartition) -> None:
    """Brings what is known of a partition up to what is in the store, and the store up to what was promised."""
    timeline = partition.store.link.timeline
    await partition.store.catalogue.settle()
    if not partition.is_loaded:
        await _load(partition)
    elif partition.seen_timeline != timeline:
        await _after_another_server(partition)
    partition.is_loaded, partition.seen_timeline = True, timeline
    await _catch_up(partition)


async def stream_info(partition: StreamPartition) -> dict[bytes, Any]:
    """What the server says of the stream; PartitionGone if there is none."""
    try:
        reply = await partition.store.link.call("XINFO", "STREAM", partition.keys.log)
    except RedisError as error:
        if "no such key" in str(error):
            raise PartitionGone(repr(partition)) from None
        raise
    return dict(zip(reply[::2], reply[1::2], strict=True))


# -- the first look -------------------------------------------------------------------------------------------------


async def _load(partition: StreamPartition) -> None:
    """Reads what the store knows of a partition, and the stream behind the last point of the index."""
    partition.forget()
    link, keys, ids = partition.store.link, partition.keys, partition.ids
    exists, beside, owner, facts, seen, producers, points, table = await link.pipeline(
        ("EXISTS", keys.log),
        ("EXISTS", keys.meta, keys.index, keys.exceptions),
        ("GET", keys.owner),
        ("HMGET", keys.meta, *losses.FIELDS),
        ("HMGET", keys.meta, "seen", "producers"),
        ("HGETALL", keys.producers),
        ("XRANGE", keys.index, "-", "+"),
        ("XRANGE", keys.exceptions, "-", "+"),
    )
    losses.adopt(partition, losses.parse(facts))
    partition.index.load([(base_of(row), row[1][1]) for row in points])
    ids.load(_exceptions(table))
    first = parse_id(points[-1][1][3]) if points else None
    if first is not None:  # what lies before the last point was looked at
        ids.know(_before(first), base_of(points[-1]) - 1)
    if seen[0] is not None:
        last, offset = seen[0].split(b" ")
        ids.know(parse_id(last), int(offset))
    partition.producers.load_states(zip(producers[::2], producers[1::2], strict=True), ids)
    partition.producers.version = int(seen[1] or 0)
    if not exists:
        bits, now_ms = ids.bits, partition.store.now_ms()
        partition.end = max(now_ms << bits, ids.last_offset + 1, partition.floor)
        ids.know(ids.natural_id(partition.end - 1), partition.end - 1)
        await _rebuild(partition)
        return
    is_ours = beside == 3 and owner == partition.topic.id.encode()
    if not is_ours and not await partition.store.catalogue.remake_partition(partition.topic, partition.number, 0):
        _gone(partition)
    generated = parse_id((await stream_info(partition))[b"last-generated-id"])
    async for rows in partition.walk(str(first) if first is not None else "-"):
        await _take_in(partition, rows, cache=False)
    if generated > ids.last:  # the last entries were removed: they count all the same
        await _accept(partition, [str(generated).encode()])
    partition.end = max(partition.end, ids.last_offset + 1, partition.floor, partition.log_start)
    losses.adopt_catalogue_epoch(partition)


def _exceptions(rows: list[Any]) -> list[Exceptional]:
    return [Exceptional(parse_id(row[0]), int(row[1][1])) for row in rows]


def _before(entry: StreamId) -> StreamId:
    """An id below an entry's that leaves its own offset as it is."""
    return entry.plus(-1) if entry.sequence else StreamId(max(entry.ms - 1, 0), 0)


# -- every other look -----------------------------------------------------------------------------------------------


async def _catch_up(partition: StreamPartition) -> None:
    """Takes in what Redis code or another node appended, or what we did without learning of it."""
    link, keys, end = partition.store.link, partition.keys, partition.end
    count, until = _READ_COUNT_FIRST, None
    while True:
        exists, facts, more, rows = await link.pipeline(
            ("EXISTS", keys.log, keys.meta),
            ("HMGET", keys.meta, *losses.FIELDS),
            ("HMGET", keys.meta, "producers", partition.writer.field),
            ("XRANGE", keys.log, partition.ids.last.after, "+", "COUNT", count),
        )
        if exists < 2:
            await _rebuild(partition)
            break
        size = await _take_in(partition, rows, cache=True)
        if len(rows) < count or (until is not None and partition.ids.last >= until):
            losses.adopt(partition, losses.parse(facts))
            partition.end = max(partition.end, partition.floor)
            await _settle_producers(partition, int(more[0] or 0))
            partition.writer.seen(more[1])
            break
        count = max(1, min(_READ_COUNT_MOST, count * _READ_BYTES // max(size, 1)))
        if until is None:  # whoever writes on and on must not keep this from ending
            newest = await link.call("XREVRANGE", keys.log, "+", "-", "COUNT", 1)
            until = parse_id(newest[0][0]) if newest else partition.ids.last
    if partition.end != end:
        partition.tell_watchers()


async def _take_in(partition: StreamPartition, rows: list[Any], *, cache: bool) -> int:
    """Gives entries their offsets and counts them; their size."""
    if not rows:
        return 0
    known = partition.ids.last
    offsets = await _accept(partition, [row[0] for row in rows])
    size = partition.index.size_bytes
    if cache:  # an append of ours may have been answered while these were on their way
        rows = [row for row in rows if parse_id(row[0]) > known]
        offsets = offsets[len(offsets) - len(rows) :]
    if rows:
        partition.count_rows(rows, offsets, cache=cache)
    return partition.index.size_bytes - size


async def _accept(partition: StreamPartition, raw_ids: list[bytes]) -> list[int]:
    """The offsets of entries; what is exceptional about them is stored first."""
    ids = partition.ids
    while True:
        reading = ids.read(raw_ids)
        if not reading.exceptions and not _is_spill(partition, reading):
            break
        expected = str(ids.exceptions[-1].id) if ids.exceptions else ""
        added: list[Argument] = [part for one in reading.exceptions for part in (str(one.id), one.offset)]
        reply = await partition.store.scripts.run(
            "save_exceptions",
            [partition.keys.exceptions, partition.keys.meta],
            [expected, f"{reading.last} {reading.last_offset}", *added],
        )
        partition.check_there(reply)
        if reply:
            break
        table = await partition.store.link.call("XRANGE", partition.keys.exceptions, "-", "+")
        ids.load(_exceptions(table))
    ids.accept(reading)
    return reading.offsets


def _is_spill(partition: StreamPartition, reading: Reading) -> bool:
    """Whether offsets are others than the ids say: how far they went has to be known to whoever comes later."""
    ids, last = partition.ids, reading.last
    return last > ids.last and (last.sequence >> ids.bits > 0 or reading.last_offset != ids.natural(last))


async def _settle_producers(partition: StreamPartition, version: int) -> None:
    """Reads the producers again if another node appended for some of them."""
    producers = partition.producers
    if version == producers.version:
        return
    link, keys = partition.store.link, partition.keys
    found, states = await link.pipeline(("HGET", keys.meta, "producers"), ("HGETALL", keys.producers))
    producers.load_states(zip(states[::2], states[1::2], strict=True), partition.ids)
    producers.version = int(found or 0)


async def go_behind_last_id(partition: StreamPartition) -> None:
    """Counts ids that nothing has any more, because the last entries were removed by hand."""
    generated = parse_id((await stream_info(partition))[b"last-generated-id"])
    if generated > partition.ids.last and not await _newer(partition):
        await _accept(partition, [str(generated).encode()])
        partition.end = max(partition.end, partition.ids.last_offset + 1)


async def _newer(partition: StreamPartition) -> list[Any]:
    after = partition.ids.last.after
    rows: list[Any] = await partition.store.link.call("XRANGE", partition.keys.log, after, "+", "COUNT", 1)
    return rows


# -- another server -------------------------------------------------------------------------------------------------


async def _after_another_server(partition: StreamPartition) -> None:
    """Looks whether the last entry known is there; appends again what is missing."""
    link, keys, last = partition.store.link, partition.keys, partition.ids.last
    exists, first, ours = await link.pipeline(
        ("EXISTS", keys.log, keys.meta),
        ("XRANGE", keys.log, "-", "+", "COUNT", 1),
        ("XRANGE", keys.log, str(last), str(last)),
    )
    if exists < 2:
        await _rebuild(partition)
        return
    generated = parse_id((await stream_info(partition))[b"last-generated-id"])
    # Entries go from the front, so if older ones are there and ours is not, it was lost rather than trimmed.
    was_lost = not ours and (generated < last or bool(first and parse_id(first[0][0]) < last))
    if was_lost and partition.end > partition.log_start:
        await _restore(partition, generated)
    await _restore_side_keys(partition)


async def _restore(partition: StreamPartition, generated: StreamId) -> None:
    """Appends the acknowledged batches that the store does not have, from the cache; the rest is a gap."""
    missing = await _missing(partition)
    restored = 0
    lost_from = missing[0].base if missing else max(await _stored_end(partition), partition.log_start)
    for entry in missing:
        first = _first_id(entry)
        if first is None:
            continue  # what Redis code wrote is its own to lose
        last = await _append_again(partition, entry, first, generated) if first > generated else None
        if last is None:
            break
        restored, generated, lost_from = restored + 1, last, entry.end
    if restored:
        log.warning(
            "batches that the store had lost were appended again",
            extra={"partition": repr(partition), "batches": restored, "from_offset": missing[0].base},
        )
        partition.store.count_event("restored_entries", restored)
    if lost_from < partition.end:
        await losses.record_gap(partition, lost_from, partition.end)
        await _forget_lost_producers(partition)
        partition.tail.clear()
    await _raise_last_id(partition)


async def _missing(partition: StreamPartition) -> list[Entry]:
    """The cached batches that are not in the stream, oldest first: all behind the newest one that is."""
    entries = list(partition.tail.since(0))
    for at in range(len(entries) - 1, -1, -1):
        if (first := _first_id(entries[at])) is None:
            continue
        if await partition.store.link.call("XRANGE", partition.keys.log, str(first), str(first)):
            return entries[at + 1 :]
    return entries


def _first_id(entry: Entry) -> StreamId | None:
    """The id of the first entry of a batch of ours; None for what Redis code wrote."""
    return parse_id(entry.token.lstrip(b"*")) if entry.token else None


async def _stored_end(partition: StreamPartition) -> int:
    rows = await partition.store.link.call("XREVRANGE", partition.keys.log, str(partition.ids.last), "-", "COUNT", 1)
    return partition.ids.offset_of(parse_id(rows[0][0])) + 1 if rows else 0


async def _append_again(partition: StreamPartition, entry: Entry, first: StreamId, after: StreamId) -> StreamId | None:
    """The last id of a batch that is in its place again; None if something came behind the last id since."""
    header, ids, keys = read_header(entry.data), partition.ids, partition.keys
    is_natural = header.base_offset == ids.natural(first) and not first.sequence >> ids.bits
    places = [ids.natural_id(header.base_offset + at) if is_natural else first.plus(at) for at in range(header.count)]
    packed = pack_entries(decode_batch(entry.data), with_time=not partition.settings.append_time)
    payload = b"\xdd\0\0\0\1\xdd" + (2 + header.count).to_bytes(4, "big") + b"\xa0\xa0" + packed
    reply = await partition.store.scripts.run(
        "append_records",
        [keys.log, keys.meta, keys.producers],
        [payload, str(after), 0, " ".join(map(str, places)), 0, 1, 0, "w:again", str(first), 0],
    )
    partition.check_there(reply[0])
    return places[-1] if reply[0] > 0 else None


async def _forget_lost_producers(partition: StreamPartition) -> None:
    """Those whose last batch was lost are forgotten in the store too."""
    forgotten = partition.producers.take_forgotten()
    if forgotten:
        await partition.store.link.call("HDEL", partition.keys.producers, *forgotten[::2])


async def _restore_side_keys(partition: StreamPartition) -> None:
    """Log start, exceptions, index, producers and losses may have gone back too."""
    link, keys, ids, producers = partition.store.link, partition.keys, partition.ids, partition.producers
    await partition.save_start(partition.log_start)
    await losses.save_again(partition)
    newest = await link.call("XREVRANGE", keys.exceptions, "+", "-", "COUNT", 1)
    stored = parse_id(newest[0][0]) if newest else StreamId(-1, 0)
    for one in ids.exceptions:
        if one.id > stored:
            await link.call("XADD", keys.exceptions, "NOMKSTREAM", str(one.id), "o", one.offset)
    if ids.is_exceptional:
        await link.call("HSET", keys.meta, "seen", f"{ids.last} {ids.last_offset}")
    states: list[Argument] = [part for known, state in producers.states.items() for part in (known, state)]
    version: list[Argument] = ["HSET", keys.meta, "producers", producers.version]
    await link.pipeline(("HSET", keys.producers, *states) if states else ("PING",), tuple(version))


async def _raise_last_id(partition: StreamPartition) -> None:
    """So that nobody appends below the end."""
    try:
        await partition.store.link.call("XSETID", partition.keys.log, str(partition.ids.last))
    except RedisError as error:
        if "no such key" in str(error):
            raise PartitionGone(repr(partition)) from None
        if "smaller" not in str(error):
            raise


async def _rebuild(partition: StreamPartition) -> None:
    """The stream is not there. If the topic is, the store evicted or lost it: it is made again behind its old end."""
    catalogue, timeline = partition.store.catalogue, partition.seen_timeline
    partition.seen_timeline = _UNSEEN  # should something come between, the next look goes on with restoring
    if not await catalogue.remake_partition(partition.topic, partition.number, partition.end):
        _gone(partition)
    generated = parse_id((await stream_info(partition))[b"last-generated-id"])
    if generated < partition.ids.last:
        kept = partition.tail.first
        await _restore(partition, generated)
        partition.log_start = max(partition.log_start, kept.base if kept and len(partition.tail) else partition.end)
    await _restore_side_keys(partition)
    partition.seen_timeline = timeline


def _gone(partition: StreamPartition) -> None:
    partition.vanish()
    raise PartitionGone(repr(partition))
