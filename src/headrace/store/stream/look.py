"""Reads the entries appended to a stream since the last read, and assigns their offsets.

Exceptions to the mapping of ids are stored before any offset that depends on them is returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.store.partition import losses
from headrace.store.partition.entries import base_of, entry_fields
from headrace.store.redis.link import Argument
from headrace.store.stream.ids import Exceptional, NumberedEntries, StreamId, parse_id
from headrace.store.stream.recovery import rebuild

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition

_READ_COUNT_FIRST = 64
_READ_COUNT_MOST = 2_048
_READ_BYTES = 256 << 10


# -- the first look -------------------------------------------------------------------------------------------------


async def load(partition: StreamPartition) -> None:
    """Loads a partition, and the stream behind the last index point."""
    partition.forget()
    link, keys, ids = partition.link, partition.keys, partition.ids
    exists, beside, owner, facts, seen, producers, points, table, oldest = await link.pipeline(
        ("EXISTS", keys.log),
        ("EXISTS", keys.meta, keys.index, keys.exceptions),
        ("GET", keys.owner),
        ("HMGET", keys.meta, *losses.FIELDS),
        ("HMGET", keys.meta, "seen", "producers"),
        ("HGETALL", keys.producers),
        ("XRANGE", keys.index, "-", "+"),
        ("XRANGE", keys.exceptions, "-", "+"),
        ("XRANGE", keys.log, "-", "+", "COUNT", 1),  # behind the index, which is trimmed last
    )
    if not beside and owner not in (None, partition.topic.id.encode()):
        exists, oldest = 0, []  # it is a deleted topic's of the same name
    if points and oldest and parse_id(oldest[0][0]) < _entry_of(points[0]):
        # Its first points were lost. They tell where the stream began, and what later ones count from.
        await link.call("DEL", keys.index)
        points, beside = [], 0
    losses.adopt(partition, losses.parse(facts))
    partition.index.load((base_of(row), entry_fields(row)) for row in points)
    ids.load(_exceptions(table))
    first = _entry_of(points[-1]) if points else None
    if first is not None:  # what lies before the last point was looked at
        ids.know(_before(first), base_of(points[-1]) - 1)
    if seen[0] is not None:
        last, offset = seen[0].split(b" ")
        ids.know(parse_id(last), int(offset))
    partition.producers.load_states(zip(producers[::2], producers[1::2], strict=True), ids)
    partition.producers.version = int(seen[1] or 0)
    if not exists:
        partition.end = max(partition.end_unseen(), ids.last_offset + 1, partition.floor)
        ids.know(ids.natural_id(partition.end - 1), partition.end - 1)
        await rebuild(partition)
        return
    if beside < 3 or owner != partition.topic.id.encode():
        await partition.make_again(0)
    generated = parse_id((await partition.info())[b"last-generated-id"])
    async for rows in partition.walk(str(first) if first is not None else "-"):
        await _take_in(partition, rows, cache=False)
    if generated > ids.last:  # the last entries were removed: they count all the same
        await _accept(partition, [str(generated).encode()])
    partition.end = max(partition.end, ids.last_offset + 1, partition.floor, partition.log_start)
    losses.adopt_catalogue_epoch(partition)


def _entry_of(point: Any) -> StreamId:
    """The entry that a stored point of the index begins at."""
    return parse_id(entry_fields(point)[b"i"])


def _exceptions(rows: list[Any]) -> list[Exceptional]:
    return [Exceptional(parse_id(row[0]), int(row[1][1])) for row in rows]


def _before(entry: StreamId) -> StreamId:
    """An id below an entry's that leaves its own offset as it is."""
    return entry.plus(-1) if entry.sequence else StreamId(max(entry.ms - 1, 0), 0)


# -- every other look -----------------------------------------------------------------------------------------------


async def catch_up(partition: StreamPartition) -> None:
    """Reads entries appended by Redis code or other nodes, or by us without seeing the reply."""
    link, keys, end = partition.link, partition.keys, partition.end
    count, until = _READ_COUNT_FIRST, None
    while True:
        counted, counted_end = partition.index.entries, partition.end
        exists, facts, more, rows, length = await link.pipeline(
            ("EXISTS", keys.log, keys.meta),
            ("HMGET", keys.meta, *losses.FIELDS),
            ("HMGET", keys.meta, "producers", partition.writer.field),
            ("XRANGE", keys.log, partition.ids.last.after, "+", "COUNT", count),
            ("XLEN", keys.log),  # behind XRANGE: what comes between makes it too many, which harms nobody
        )
        if exists < 2:
            await rebuild(partition)
            break
        size = await _take_in(partition, rows, cache=True)
        if len(rows) < count:
            partition.count_removed(counted - (length - len(rows)), counted_end)
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
    """The offsets of entries; exceptional ids are stored first."""
    ids = partition.ids
    while True:
        reading = ids.read(raw_ids)
        if not reading.exceptions and not _is_spill(partition, reading):
            break
        expected = str(ids.exceptions[-1].id) if ids.exceptions else ""
        added: list[Argument] = [part for one in reading.exceptions for part in (str(one.id), one.offset)]
        reply = await partition.scripts.run(
            "save_exceptions",
            [partition.keys.exceptions, partition.keys.meta],
            [expected, f"{reading.last} {reading.last_offset}", *added],
        )
        partition.check_there(reply)
        if reply:
            break
        table = await partition.link.call("XRANGE", partition.keys.exceptions, "-", "+")
        ids.load(_exceptions(table))
    ids.accept(reading)
    return reading.offsets


def _is_spill(partition: StreamPartition, reading: NumberedEntries) -> bool:
    """Whether offsets are others than the ids say: how far they went has to be known to whoever comes later."""
    ids, last = partition.ids, reading.last
    return last > ids.last and (last.sequence >> ids.bits > 0 or reading.last_offset != ids.natural(last))


async def _settle_producers(partition: StreamPartition, version: int) -> None:
    """Reads the producers again if another node changed some of them."""
    producers, link, keys = partition.producers, partition.link, partition.keys
    if version <= producers.version:
        return
    found, states = await link.pipeline(("HGET", keys.meta, "producers"), ("HGETALL", keys.producers))
    if int(found or 0) > producers.version:  # else an append of ours was answered while these were on their way
        producers.load_states(zip(states[::2], states[1::2], strict=True), partition.ids)
        producers.version = int(found or 0)


async def go_behind_last_id(partition: StreamPartition) -> None:
    """Counts ids at the end whose entries were removed by hand."""
    generated = parse_id((await partition.info())[b"last-generated-id"])
    if generated > partition.ids.last and not await _newer(partition):
        await _accept(partition, [str(generated).encode()])
        partition.end = max(partition.end, partition.ids.last_offset + 1)


async def go_behind_lost(partition: StreamPartition) -> None:
    """Ids come from the server's clock, so what was lost lies before now. Exceptional ids are chosen by hand.

    The last id is raised first: what Redis code wrote until then is taken in, and nothing comes before it any more.
    """
    if await losses.has_margin(partition):
        partition.end = max(partition.end, partition.floor)
        return
    # Before the id is raised: the next try would take what this one skipped for entries that somebody removed.
    await partition.context.catalogue.check_copies()
    link, keys, ids = partition.link, partition.keys, partition.ids
    seconds, microseconds = await link.call("TIME")
    last = ids.natural_id(((int(seconds) * 1000 + int(microseconds) // 1000) << ids.bits) - 1)
    if last > ids.last and not ids.is_exceptional:
        partition.check_there(await partition.scripts.run("raise_last_id", [keys.log], [str(last)]))
        await _take_in(partition, await link.call("XRANGE", keys.log, ids.last.after, str(last)), cache=True)
    behind = max(partition.end, ids.natural(last) + 1) if not ids.is_exceptional else partition.end
    await losses.leave_margin(partition, partition.end, behind)
    if not ids.is_exceptional:
        ids.know(last, ids.natural(last))
    partition.end = max(partition.end, partition.floor)


async def _newer(partition: StreamPartition) -> list[Any]:
    after = partition.ids.last.after
    rows: list[Any] = await partition.link.call("XRANGE", partition.keys.log, after, "+", "COUNT", 1)
    return rows
