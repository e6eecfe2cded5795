"""Compares the store's log with what this node acknowledged, where another writer reused offsets.

The store's history is the truth. What matters is which of our records it replaced, and which offsets have no records at
all any more: only those are a gap. At the others readers find another node's records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.store.log.compacting.state import parse_state
from headrace.store.log.entries import parse_entry
from headrace.store.partition.entries import LAST_SEQUENCE as LAST
from headrace.store.partition.entries import Entry
from headrace.store.partition.losses import Gap, uncovered
from headrace.store.redis.errors import StoreAway

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition


class OtherHistory(NamedTuple):
    """The store's history from the first record of ours on that it replaced."""

    replaced: Gap
    """The offsets of our records that are not in the log any more."""
    missing: list[Gap]
    """Those of them that nobody has records for."""
    end: int
    """Where the store's log ends."""


async def find_replaced(partition: LogPartition, store_base: int) -> Entry | None:
    """An entry of ours that the store has replaced; None if the histories agree, as far as the cache tells."""
    shared, first = min(store_base, partition.last_base), partition.tail.first
    if first is None or shared < first.base:
        return None
    ours = next(partition.tail.since(shared))
    if ours.base != shared:
        return ours
    rows = await partition.link.call("XRANGE", partition.keys.log, f"{ours.base}-0", f"{ours.base}-{LAST}")
    if not rows and await _gone_to(partition) >= ours.end:
        return None  # another node trimmed it
    found = parse_entry(rows[0]) if rows else None
    return None if found is not None and found.token == ours.token else ours


async def compare(partition: LogPartition, ours: Entry) -> OtherHistory:
    """Reads the store's entries beside those in the cache, of which `ours` was replaced, and perhaps others before."""
    timeline, known = partition.link.timeline, list(partition.tail.since(0))
    first = min(ours.base, known[0].base) if known else ours.base
    before = await partition.link.call("XREVRANGE", partition.keys.log, f"{first}-0", "-", "COUNT", 1)
    found = [entry for row in before if (entry := parse_entry(row)) is not None]
    stored = [(entry.base, entry.end) for entry in found]
    tokens: dict[int, bytes] = {}
    async for entries in partition.walk(first):
        stored += [(entry.base, entry.end) for entry in entries]
        tokens |= {entry.base: entry.token for entry in entries}
    gone_to = await _gone_to(partition)  # after the entries: what they lack is below it
    if partition.link.timeline != timeline:
        raise StoreAway("another server answers")
    replaced = [one.base for one in known if one.end > gone_to and tokens.get(one.base) != one.token]
    start = min([ours.base, *replaced])
    missing = uncovered(stored, max(start, gone_to), partition.end)
    return OtherHistory(Gap(start, partition.end), missing, stored[-1][1] if stored else gone_to)


async def _gone_to(partition: LogPartition) -> int:
    """Where the log's entries begin: those before were trimmed or compacted."""
    start, local, clean = await partition.link.call("HMGET", partition.keys.meta, "start", "local", "clean")
    return max(int(start or 0), int(local or 0), parse_state(clean).end)
