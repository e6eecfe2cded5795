"""`cleanup.policy=compact` for stream topics: the last record of each key stays, in the background and in small steps.

The rules are Kafka's. Behind what was compacted before, the newest id of each key is noted; then, from the start of the
stream on, entries whose key has a newer one are removed. A tombstone (a key without a value) stays until
delete.retention.ms after the compaction that first passed it, so that every reader can learn of it. The stream's newest
entry stays. What Redis code wrote without a field `key` has nothing that could replace it, and stays. An entry that
a Redis group has given to a consumer stays until it is acknowledged and is removed by a later compaction.

Removing keeps ids, groups and readers as they are, and stopping anywhere does no harm: what was removed was rightly
removed, and the next compaction begins where the last whole one ended. What it leaves half empty, `stream/repacking.py`
packs.

Entries are removed only on the server that they were read from: another one that answers meanwhile may lack the newer
record of a key, and then the older one is its last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.store.partition.entries import LAST_SEQUENCE
from headrace.store.partition.key_map import MOST_KEYS, digest
from headrace.store.partition.old_records import CompactionPolicy
from headrace.store.redis.errors import PartitionGone, RedisError, StoreAway
from headrace.store.redis.link import Argument
from headrace.store.redis.route import Route
from headrace.store.redis.scripts import Scripts
from headrace.store.stream.compacting.scripts import COMPACTION_SOURCES
from headrace.store.stream.compacting.state import CompactionState, parse_state
from headrace.store.stream.ids import StreamId, parse_id
from headrace.store.stream.records import KEY, VALUE, is_foreign
from headrace.store.stream.repacking import Repacking
from headrace.store.stream.walk import Pace, portions, stored_bytes

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition

log = logging.getLogger(__name__)

MOST_LEFTOVERS = 4_096
_WASTE = 1.5
_SMALLEST_BYTES = 4_700
"""Memory of a stream with one small entry."""
_SAMPLED_BLOCKS = 5_000


class Compacted(NamedTuple):
    """The result of a compaction."""

    looked_at: int
    removed: int
    is_repacked: bool
    why_not_repacked: str


async def compact_if_due(partition: StreamPartition, policy: CompactionPolicy) -> Compacted | None:
    """Compacts a partition if it is due; entries without an offset yet wait for the next round."""
    keys = partition.keys
    compaction = Compaction(
        partition.link,
        partition.reads,
        stream=keys.log,
        meta=keys.meta,
        now_ms=partition.now_ms,
        skips_foreign=partition.policy.skips_foreign,
    )
    if not await compaction.is_due(policy):
        return None
    await partition.confirm()
    compacted = await compaction.run(policy, partition.ids.last)
    partition.compactions.passes += 1
    partition.compactions.removed_records += compacted.removed
    log.info("a partition was compacted", extra={"partition": repr(partition), **compacted._asdict()})
    return compacted


class _Swept(msgspec.Struct):
    """The result of one scan of the stream."""

    looked_at: int = 0
    stayed: int = 0
    removed: int = 0
    live_bytes: int = 0
    leftovers: list[str] = []
    first_tombstone: StreamId | None = None
    cut: tuple[str, int] | None = None
    """Where there were too many leftovers to note: the id, and the entries up to it."""


def key_of(entry: tuple[bytes, list[bytes]], skips_foreign: bool) -> tuple[bytes | None, bool]:
    """The key that a Kafka consumer sees, and whether the record is a tombstone."""
    fields = entry[1]
    names = fields[::2]
    if KEY not in names or (skips_foreign and is_foreign(entry)):
        return None, False
    key = fields[names.index(KEY) * 2 + 1]
    return key, VALUE not in names and not is_foreign(entry)


class Compaction:
    """The compaction of one partition's stream."""

    def __init__(
        self,
        link: Route,
        reads: Route,
        *,
        stream: str,
        meta: str,
        now_ms: Callable[[], int],
        skips_foreign: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self._link = link
        self._reads = reads
        self._stream = stream
        self._meta = meta
        self._now_ms = now_ms
        self._skips_foreign = skips_foreign
        self._pace = pace or Pace()
        self._scripts = Scripts(link, COMPACTION_SOURCES)
        self._timeline = link.timeline

    async def is_due(self, policy: CompactionPolicy) -> bool:
        """Whether enough is new, or something has waited long enough. It costs three commands."""
        info = await self._info()
        state = parse_state(await self._stored_state())
        if info is None or not info["length"]:
            return False
        first = await self._reads.call("XRANGE", self._stream, f"({state.upto}", "+", "COUNT", 1)
        first_ms = parse_id(first[0][0]).ms if first else None
        added = state.added_since(info["length"], info.get("entries-added")) if first else 0
        return state.is_due(policy, self._now_ms(), info["length"], added, first_ms, info["last_ms"])

    async def run(self, policy: CompactionPolicy, known: StreamId | None = None) -> Compacted:
        """Compacts; entries behind `known` are not looked at, for their offsets have not been given out."""
        self._timeline = self._link.timeline
        newest = await self._reads.call("XREVRANGE", self._stream, "+", "-", "COUNT", 1)
        if not newest:
            return Compacted(0, 0, False, "")
        stored = await self._stored_state()
        state, now_ms = parse_state(stored), self._now_ms()
        upto = _last_cleanable(policy, now_ms, known)
        latest, last = await self._newest_ids(state.upto, upto)
        swept = await self._sweep(state, latest, last, newest[0][0], policy, now_ms)
        if swept.cut is not None:
            last, swept.stayed = swept.cut
        following = state.following(
            policy,
            self._now_ms(),
            upto=last,
            clean=swept.stayed,
            added=await self._added_up_to(swept.stayed),
            leftovers=swept.leftovers,
            first_tombstone=swept.first_tombstone,
        )
        await self._run_script("save_compaction", [self._meta], [stored or b"", msgspec.json.encode(following)])
        return await self._repack_if_worth(swept)

    # -- what there is ------------------------------------------------------------------------------------------

    async def _info(self) -> dict[str, Any] | None:
        """XINFO STREAM's counters; None if the stream is not there."""
        if not await self._link.call("EXISTS", self._stream):
            return None
        flat = await self._reads.call("XINFO", "STREAM", self._stream)
        info = {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}
        info["last_ms"] = parse_id(info["last-generated-id"]).ms
        return info

    async def _added_up_to(self, entries: int) -> int | None:
        """The number of entries ever added before the given position."""
        info = await self._info()
        if info is None:
            raise PartitionGone(self._stream)
        added: int | None = info.get("entries-added")
        return None if added is None else added - max(info["length"] - entries, 0)

    async def _stored_state(self) -> bytes | None:
        stored: bytes | None = await self._link.call("HGET", self._meta, "compaction")
        return stored

    async def _run_script(self, name: str, keys: list[str], arguments: list[Argument]) -> Any:
        """Never redirected, and not sent to another server than the one that was read."""
        try:
            reply = await self._send_script(name, keys, arguments)
        except RedisError as error:
            if error.kind != "NOSCRIPT":
                raise
            reply = await self._send_script(name, keys, arguments, source=True)
        if reply == -1:
            raise PartitionGone(self._stream)
        return reply

    def _send_script(
        self, name: str, keys: list[str], arguments: list[Argument], source: bool = False
    ) -> asyncio.Future[Any]:
        if self._link.timeline != self._timeline:
            raise StoreAway("another server answers")
        return self._scripts.send(name, keys, arguments, source)

    # -- the two passes -----------------------------------------------------------------------------------------

    async def _newest_ids(self, after: str, upto: str) -> tuple[dict[bytes, bytes], str]:
        """The newest id of each key that is new, and the last id that was looked at."""
        latest: dict[bytes, bytes] = {}
        last = after
        if parse_id(after) >= parse_id(upto):
            return latest, last
        async for rows in portions(self._reads, self._stream, after=after, upto=upto, pace=self._pace):
            for row in rows:
                key, _ = key_of(row, self._skips_foreign)
                if key is not None:
                    latest[digest(key)] = row[0]
            last = rows[-1][0].decode()
            if len(latest) >= MOST_KEYS:
                break
        return latest, last

    async def _sweep(
        self,
        state: CompactionState,
        latest: dict[bytes, bytes],
        upto: str,
        newest: bytes,
        policy: CompactionPolicy,
        now_ms: int,
    ) -> _Swept:
        """Removes replaced records and expired tombstones."""
        swept = _Swept()
        known_dead = {one.encode() for one in state.leftovers}
        horizon = state.tombstone_horizon(now_ms - policy.delete_retention_ms)
        async for rows in portions(self._reads, self._stream, after="0-0", upto=upto, pace=self._pace):
            dead: list[Argument] = []
            for row in rows:
                key, is_tombstone = key_of(row, self._skips_foreign)
                replaced = row[0] in known_dead or (key is not None and latest.get(digest(key), row[0]) != row[0])
                expired = is_tombstone and not replaced and parse_id(row[0]) <= horizon
                if (replaced or expired) and row[0] != newest:
                    dead.append(row[0])
                    continue
                swept.live_bytes += stored_bytes(row[1])
                if is_tombstone and swept.first_tombstone is None:
                    swept.first_tombstone = parse_id(row[0])
            kept = await self._run_script("sweep", [self._stream], dead) if dead else []
            _count(swept, rows, len(dead) - len(kept), kept)
        return swept

    async def _repack_if_worth(self, swept: _Swept) -> Compacted:
        """Repacks the stream where it takes much more memory than its entries need."""
        used = await self._link.call("MEMORY", "USAGE", self._stream, "SAMPLES", _SAMPLED_BLOCKS)
        entries = await self._link.call("XLEN", self._stream)
        needed = swept.live_bytes * entries / max(swept.stayed, 1)
        if not used or used <= _WASTE * max(needed, _SMALLEST_BYTES):
            return Compacted(swept.looked_at, swept.removed, False, "")
        repacked = await Repacking(self._link, self._reads, self._scripts, self._stream, self._pace).run()
        return Compacted(swept.looked_at, swept.removed, repacked.is_done, repacked.why_not)


def _count(swept: _Swept, rows: list[tuple[bytes, list[bytes]]], removed: int, kept: list[bytes]) -> None:
    """Adds up the result of a portion."""
    swept.looked_at += len(rows)
    swept.removed += removed
    swept.stayed += len(rows) - removed
    if swept.cut is not None:
        return
    swept.leftovers += [raw.decode() for raw in kept]
    if len(swept.leftovers) >= MOST_LEFTOVERS:
        swept.cut = (rows[-1][0].decode(), swept.stayed)


def _last_cleanable(policy: CompactionPolicy, now_ms: int, known: StreamId | None) -> str:
    """The last id to consider: old enough, and not beyond the known end."""
    bounds = [StreamId((1 << 64) - 1, LAST_SEQUENCE)]
    if policy.min_lag_ms > 0:
        bounds.append(StreamId(max(now_ms - policy.min_lag_ms, 0), LAST_SEQUENCE))
    if known is not None:
        bounds.append(known)
    return str(min(bounds))
