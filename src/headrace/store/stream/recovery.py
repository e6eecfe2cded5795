"""Restores records that the store lost. `log/recovery.py` does the same for the format `log`.

If another server answers, the store may have gone back in time. Acknowledged batches that are missing are appended
again from the tail cache under their own ids, as long as nothing was appended after their place since; else they are
reported as lost (`other_history.py`). What cannot be restored leaves a gap (`losses.py`): the offsets of it at which
nobody has written since.

A batch is restored as it was appended, in one write with its producer's state, derived from what the store has. Entries
read from the stream are restored as well, whoever wrote them: an append with a lost reply, another node, Redis code
with a record's fields. Their producers' states are written after them, unless the store has newer ones.

Everything else known about producers is dropped and read again: the store may have moved on without us, by an append
with a lost reply or through another node.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

import msgspec

from headrace.store.partition import losses, origin
from headrace.store.partition.entries import NO_OFFSET, Entry, base_of
from headrace.store.partition.losses import Gap
from headrace.store.redis.link import Argument
from headrace.store.stream.ids import StreamId, parse_id
from headrace.store.stream.other_history import compare, is_ours, records_of, rows_between
from headrace.store.stream.producers import StreamProducers
from headrace.store.stream.records import pack_entries
from headrace.store.stream.tokens import NOT_SERVED, READ
from headrace.store.stream.writer import pack_batches
from headrace.wire.batch import MAX_UNPACKED_BYTES, BatchHeader, read_header

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition

log = logging.getLogger(__name__)

_READ_COUNT = 16


async def recover(partition: StreamPartition) -> None:
    """Checks that the last known entry is there; appends again what is missing."""
    if await partition.link.call("EXISTS", partition.keys.log, partition.keys.meta) < 2:
        await rebuild(partition)
        return
    await _restore_exceptions(partition)
    if await _has_lost(partition):
        await _restore(partition, await _stored_end(partition))
    await _restore_side_keys(partition)
    partition.producers.outdate()
    partition.count_anew()


async def rebuild(partition: StreamPartition) -> None:
    """Recreates the stream and fills it from the cache."""
    is_lost = not await _is_there(partition)
    async with partition.remaking() as end:
        await _restore_exceptions(partition)
        kept = partition.tail.first
        if kept or await _last_id(partition) < partition.ids.last:
            await _restore(partition, _known_start(partition, kept) if kept else partition.log_start)
            start = kept.base if kept and len(partition.tail) else partition.end
            earliest = await partition.find_earliest()
            partition.log_start = max(partition.log_start, min(start, earliest))
        if is_lost and end > partition.end:
            await _go_on_at(partition, end)
        await _restore_side_keys(partition)
    partition.producers.outdate()
    partition.count_anew()


async def _is_there(partition: StreamPartition) -> bool:
    """Whether the stream is there, and is not a deleted topic's of the same name."""
    keys = partition.keys
    is_there, owner = await partition.link.pipeline(("EXISTS", keys.log), ("GET", keys.owner))
    return bool(is_there) and owner in (None, partition.topic.id.encode())


async def _go_on_at(partition: StreamPartition, end: int) -> None:
    """Leaves out the offsets up to an end: another node may have given them out."""
    ids = partition.ids
    await losses.record_gap(partition, partition.end, end)
    partition.end = end
    ids.know(ids.natural_id(end - 1), end - 1)
    partition.check_there(await partition.scripts.run("raise_last_id", [partition.keys.log], [str(ids.last)]))


async def remake_rest(partition: StreamPartition) -> None:
    """Goes on where a node stopped that made the stream again: the floor says how far it went."""
    stored_end, offsets = await _stored_end(partition), partition.index.offsets
    if stored_end == partition.log_start and len(offsets):
        stored_end = max(stored_end, offsets[0])
    if stored_end < partition.end:
        await _restore(partition, stored_end)
    await _restore_side_keys(partition)
    partition.producers.outdate()
    partition.count_anew()


def _known_start(partition: StreamPartition, kept: Entry) -> int:
    """Where entries began that the stream held; at what the cache has if it held nothing before that."""
    offsets = partition.index.offsets
    return min(max(partition.log_start, offsets[0]), kept.base) if len(offsets) else kept.base


# -- what is missing ------------------------------------------------------------------------------------------------


async def _has_lost(partition: StreamPartition) -> bool:
    """Whether the last entry that is known was in the stream and nobody removed it, yet it is not there."""
    link, keys, last = partition.link, partition.keys, partition.ids.last
    first, ours = await link.pipeline(
        ("XRANGE", keys.log, "-", "+", "COUNT", 1), ("XRANGE", keys.log, str(last), str(last))
    )
    if partition.end <= partition.log_start:
        return False
    if ours:
        cached = partition.tail.last
        return cached is not None and not await is_ours(partition, cached, ours[0])
    info = await partition.info()
    generated = parse_id(info[b"last-generated-id"])
    if last in (generated, parse_id(info.get(b"max-deleted-entry-id", b"0-0"))):
        return False
    if (cached := partition.tail.last) is not None and await losses.is_given_up(partition, cached.end - 1):
        return True
    # Entries go from the front, so if older ones are there and ours is not, it was lost rather than trimmed.
    return generated < last or bool(first and parse_id(first[0][0]) < last)


async def _last_id(partition: StreamPartition) -> StreamId:
    """The last id that the server gave out."""
    return parse_id((await partition.info())[b"last-generated-id"])


async def _stored_end(partition: StreamPartition) -> int:
    """The position behind the last known entry that the store still has."""
    ids = partition.ids
    rows = await partition.link.call("XREVRANGE", partition.keys.log, str(ids.last), "-", "COUNT", 1)
    generated = await _last_id(partition)
    found = [ids.offset_of(parse_id(rows[0][0])) + 1] if rows else []
    if (0, 0) < generated <= ids.last:  # the last ones may have been removed by hand
        found.append(ids.offset_of(generated) + 1)
    return max([partition.log_start, *found])


async def _missing(partition: StreamPartition) -> list[Entry]:
    """The cached batches that are not in the stream, oldest first: all behind the newest one that is.

    Of that one at least one entry is left: compaction removes others of a batch, but not the newest of a stream.
    """
    entries, generated = list(partition.tail.since(0)), await _last_id(partition)
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if not entry.data or (entry.token and _first_id(partition, entry) > generated):
            continue  # entries of Redis code that readers do not get; or behind all that is there
        rows = await partition.rows_from(read_header(entry.data).base_offset, 1, partition.link)
        if (
            rows
            and partition.ids.offset_of(parse_id(rows[0][0])) < entry.end
            and await is_ours(partition, entry, rows[0])
        ):
            is_cut = entry.token == READ and generated < partition.ids.natural_id(entry.end - 1)
            return entries[at if is_cut else at + 1 :]
    return entries


def _first_id(partition: StreamPartition, entry: Entry) -> StreamId:
    """The id of the first entry of a batch of ours, or of batches that were read."""
    if entry.token == READ:
        return partition.ids.natural_id(read_header(entry.data).base_offset)
    return parse_id(entry.token.lstrip(NOT_SERVED))


# -- putting it back ------------------------------------------------------------------------------------------------


async def _restore(partition: StreamPartition, stored_end: int) -> None:
    """Appends the acknowledged batches that the store does not have, from the cache; the rest is a gap."""
    cached, missing = list(partition.tail.since(0)), await _missing(partition)
    if there := cached[: len(cached) - len(missing)]:
        stored_end = max(stored_end, there[-1].end)  # the last entries of it may have been removed
    restored_from = missing[0].base if missing else partition.end
    if restored_from > stored_end:
        await _give_up(partition, Gap(stored_end, restored_from))
    missing = kept = await _without_overtaken(partition, missing)
    restored, tried = 0, None
    while missing and (trial := (missing[0].base, await _last_id(partition))) != tried:
        tried = trial  # if another node was faster with some, the others may still go in
        restored += await _append_again(partition, missing)
        missing = await _missing(partition)
    if restored:
        log.warning(
            "batches lost by the store were appended again",
            extra={"partition": repr(partition), "batches": restored, "from_offset": kept[0].base},
        )
        partition.count_event("restored_entries", restored)
    await _restore_producers(partition, kept[: len(kept) - len(missing)])
    missing = await _without_overtaken(partition, missing)
    if missing:
        await _give_up(partition, Gap(missing[0].base, missing[-1].end))
        partition.tail.clear()
    reply = await partition.scripts.run("raise_last_id", [partition.keys.log], [str(partition.ids.last)])
    partition.check_there(reply)


async def _without_overtaken(partition: StreamPartition, missing: list[Entry]) -> list[Entry]:
    """The batches that can still go in: those that others have written behind the place of are lost."""
    generated = await _last_id(partition)
    overtaken = [at for at, entry in enumerate(missing) if _is_overtaken(partition, entry, generated)]
    if not overtaken:
        return missing
    lost, kept = missing[: overtaken[-1] + 1], missing[overtaken[-1] + 1 :]
    await _take_other_history(partition, lost)
    partition.tail.clear()
    for entry in kept:
        partition.tail.add(entry)
    return kept


def _is_overtaken(partition: StreamPartition, entry: Entry, generated: StreamId) -> bool:
    if entry.token == READ:
        return not _read_records(partition, entry, generated)[2]
    return bool(entry.token) and _first_id(partition, entry) <= generated


async def _append_again(partition: StreamPartition, missing: list[Entry]) -> int:
    """How many batches are in their places again: all, or those before the first that was refused."""
    generated, producers = await _last_id(partition), await _stored_producers(partition)
    done = 0
    for entry in missing:
        if not entry.token:
            continue  # what only Redis code can write is its own to lose
        if entry.token == READ and not origin.leads(partition):
            break  # the leader has it too, as it was written or as it was read
        last = await _append_one(partition, entry, generated, producers)
        if last is None:
            break
        done, generated = done + 1, last
    return done


async def _stored_producers(partition: StreamPartition) -> StreamProducers:
    """The producers as the store has them."""
    producers = StreamProducers()
    rows = await partition.link.call("HGETALL", partition.keys.producers)
    producers.load_states(zip(rows[::2], rows[1::2], strict=True), partition.ids)
    return producers


async def _append_one(
    partition: StreamPartition, entry: Entry, after: StreamId, producers: StreamProducers
) -> StreamId | None:
    """The last id of a cached entry that is in its place again; None if something came behind the last id since."""
    keys, first = partition.keys, _first_id(partition, entry)
    if entry.token == READ:
        header, packed, places = _read_records(partition, entry, after)
    elif first > after:
        header, packed, places = await _own_batch(partition, entry)
    else:
        return None
    if not places:
        return None
    heads, known = ([b""], []) if producers.covers(header) else producers.heads([header])
    place: tuple[Argument, ...] = (str(after), 0, " ".join(map(str, places)), 0, 1, 0)
    token: tuple[Argument, ...] = ("w:again", secrets.token_hex(8), 0)
    reply = await partition.scripts.run(
        "append_records",
        [keys.log, keys.meta, keys.producers],
        [pack_batches([(header, heads[0], packed)]), *place, *token, *known],
    )
    partition.check_there(reply[0])
    if reply[0] == 0:
        return None
    if heads[0]:
        producers.appended(header, heads[0], str(first).encode(), partition.ids)
    return places[-1]


_Packed = tuple[BatchHeader, bytes, list[StreamId]]
"""Records as the script takes them, and their ids."""


async def _own_batch(partition: StreamPartition, entry: Entry) -> _Packed:
    """A batch as this node appended it: its ids follow each other."""
    header, ids, first = read_header(entry.data), partition.ids, _first_id(partition, entry)
    is_natural = header.base_offset == ids.natural(first) and not first.sequence >> ids.bits
    places = [ids.natural_id(header.base_offset + at) if is_natural else first.plus(at) for at in range(header.count)]
    return header, await partition.writer.pack(memoryview(entry.data), header, MAX_UNPACKED_BYTES), places


def _read_records(partition: StreamPartition, entry: Entry, after: StreamId) -> _Packed:
    """Batches read from the stream that are missing now, of any writer, so without producer state.

    No ids if none of it can follow an id: if something came behind its place since.
    """
    records = records_of(entry)
    places = [partition.ids.natural_id(record.offset) for record in records]
    done = places.index(after) + 1 if after in places else 0
    places = places[done:] if done or places[0] > after else []
    header = msgspec.structs.replace(read_header(entry.data), producer_id=-1, count=len(places))
    return header, pack_entries(records[done:], not partition.policy.log_append_time), places


async def _restore_producers(partition: StreamPartition, restored: list[Entry]) -> None:
    """Gives producers back the states of batches that were restored without them, unless the store's are newer."""
    read = [(entry.base, entry.end) for entry in restored if entry.token == READ]
    producers = partition.producers
    states: list[Argument] = []
    for producer_id, known in producers.by_id.items():
        last = known.batches[-1].base_offset
        if producer_id in producers.states and any(base <= last < end for base, end in read):
            states += (str(producer_id), producers.states[producer_id])
    if states:
        keys = partition.keys
        await partition.scripts.run("restore_producers", [keys.producers, keys.meta], states)


async def _give_up(partition: StreamPartition, lost: Gap) -> None:
    """Notes what is lost for good. Only offsets without entries are a gap: others may have written among them."""
    stored = [(offset, offset + 1) async for offset, _ in rows_between(partition, lost)]
    gaps = losses.uncovered(stored, lost.start, lost.end)
    if gaps != [lost] and origin.leads(partition):
        await losses.note_replaced(partition, lost)
    await losses.give_up(partition, gaps)
    await _go_behind(partition, lost)


async def _take_other_history(partition: StreamPartition, overtaken: list[Entry]) -> None:
    """Others wrote behind the place of cached batches: whoever knows them reports them, for nobody can restore them."""
    lost = await compare(partition, overtaken)
    if lost is not None:
        await losses.note_replaced(partition, lost.span)
        await losses.record_gaps(partition, lost.missing)
        await _go_behind(partition, lost.span)


async def _go_behind(partition: StreamPartition, lost: Gap) -> None:
    """The producers whose last batches are among lost ones are forgotten in the store too."""
    await losses.go_behind(partition, lost.start, lost.end)
    forgotten = partition.producers.take_forgotten()
    if forgotten:
        await partition.scripts.run("forget_producers", [partition.keys.producers, partition.keys.meta], [*forgotten])


async def _restore_exceptions(partition: StreamPartition) -> None:
    """The table of exceptions may have gone back too: it is needed before the entries that it tells the offsets of."""
    ids, keys = partition.ids, partition.keys
    seen = f"{ids.last} {ids.last_offset}" if ids.is_exceptional else ""
    table: list[Argument] = [part for one in ids.exceptions for part in (str(one.id), one.offset)]
    if seen or table:
        reply = await partition.scripts.run("restore_exceptions", [keys.exceptions, keys.meta], [seen, *table])
        partition.check_there(reply)


async def _restore_side_keys(partition: StreamPartition) -> None:
    """Log start, losses and index may have gone back too."""
    await partition.save_start(partition.log_start)
    await losses.save_again(partition)
    link, keys, index = partition.link, partition.keys, partition.index
    index.forget_before(partition.log_start)
    newest = await link.call("XREVRANGE", keys.index, "+", "-", "COUNT", 1)
    stored = base_of(newest[0]) if newest else NO_OFFSET
    for point in [index.point(at) for at in range(len(index)) if index.offsets[at] > stored]:
        rows = await partition.rows_from(point.offset, 1, link)
        if not rows:
            break
        partition.store_point(point, parse_id(rows[0][0]))
