"""Making good what the store lost of a stream. `recovery.py` is the same for format `log`.

If the server is another one than before, the store may have gone back in time: batches that the broker acknowledged and
that are missing are appended again from the tail cache under their own ids, as long as nothing was appended behind
their place since. What cannot be restored leaves a gap (`losses.py`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.store import losses
from headrace.store.entries import Entry
from headrace.store.errors import PartitionGone, RedisError
from headrace.store.redis import Argument
from headrace.store.stream_ids import StreamId, parse_id
from headrace.store.stream_records import pack_entries
from headrace.wire.batch import read_header
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.store.stream_partition import StreamPartition

log = logging.getLogger(__name__)


async def recover(partition: StreamPartition) -> None:
    """Looks whether the last entry known is there; appends again what is missing."""
    link, keys, last = partition.store.link, partition.keys, partition.ids.last
    exists, first, ours = await link.pipeline(
        ("EXISTS", keys.log, keys.meta),
        ("XRANGE", keys.log, "-", "+", "COUNT", 1),
        ("XRANGE", keys.log, str(last), str(last)),
    )
    if exists < 2:
        await rebuild(partition)
        return
    info = await partition.info()
    generated = parse_id(info[b"last-generated-id"])
    was_removed = last in (generated, parse_id(info.get(b"max-deleted-entry-id", b"0-0")))
    # Entries go from the front, so if older ones are there and ours is not, it was lost rather than trimmed.
    is_missing = generated < last or bool(first and parse_id(first[0][0]) < last)
    if not ours and is_missing and not was_removed and partition.end > partition.log_start:
        await _restore(partition, generated)
    await _restore_side_keys(partition)
    partition.count_anew()


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
    """The cached batches that are not in the stream, oldest first: all behind the newest one that is.

    Of that one at least one entry is left: compaction removes others of a batch, but not the newest of a stream.
    """
    entries = list(partition.tail.since(0))
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if not entry.data:
            continue  # entries of Redis code that readers do not get
        rows = await partition.rows_from(read_header(entry.data).base_offset, 1, partition.store.link)
        if rows and partition.ids.offset_of(parse_id(rows[0][0])) < entry.end:
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


async def rebuild(partition: StreamPartition) -> None:
    """Makes the stream again, and in it what the cache has."""
    async with partition.remaking():
        generated = parse_id((await partition.info())[b"last-generated-id"])
        if generated < partition.ids.last:
            kept = partition.tail.first
            await _restore(partition, generated)
            partition.log_start = max(partition.log_start, kept.base if kept and len(partition.tail) else partition.end)
        await _restore_side_keys(partition)
    partition.count_anew()
