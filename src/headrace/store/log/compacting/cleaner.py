"""Compacts a partition of the format `log` in the background, in passes of small steps.

A pass records the last offset of each key after the compacted part, copies the remaining records of that part and of
the newly read one, replaces the old copy, and then trims the log. The rules for what stays are Kafka's
(`wire/cleaning.py`). If a pass is interrupted, either nothing has changed or only the trimming is left.

All of it holds for one server. If another one answers meanwhile, it may lack entries whose keys were noted, or the copy
itself: a pass that was under way is given up, and the log is trimmed only where the copy is.

A pass stops before the last entry, which marks the end of the log; before the last stable offset; and before entries of
other nodes so recent that their writer may still be looking for them after an unknown outcome. The producers' state is
stored first, because a node that opens the partition derives it from the entries after that snapshot.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headrace.store.log.compacting.copying import Copy
from headrace.store.log.compacting.room import NoRoom, Rest, Rooms
from headrace.store.log.compacting.sifting import Sieve
from headrace.store.log.compacting.state import CleanState, Dirt, is_due, old_enough
from headrace.store.log.entries import walk
from headrace.store.partition import origin
from headrace.store.partition.entries import Entry
from headrace.store.partition.index import Point
from headrace.store.partition.key_map import MOST_KEYS
from headrace.store.partition.old_records import CompactionPolicy
from headrace.store.redis.link import Argument

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

log = logging.getLogger(__name__)

PASS_BYTES = 256 << 20
"""Bytes of the log per pass; as much as the compacted part has if that is more, because each pass copies it."""
_PORTION_BYTES = 1 << 20
_TRIM_ENTRIES = 256
_TRIM_BYTES = 4 << 20
_NO_LAG_LIMIT = 1 << 62
_MOST_PASSES = 8
"""At a time: other partitions wait for their turn."""


class Passed(NamedTuple):
    """The result of one pass."""

    from_offset: int
    to_offset: int
    keys: int
    before_bytes: int
    after_bytes: int


class Cleaner:
    """The compaction of one partition, as long as this node knows it."""

    def __init__(self, partition: LogPartition) -> None:
        self._partition = partition
        self._ends: deque[tuple[float, int]] = deque()
        """Where the log ended, and when that was seen."""
        self._trimmed = b""
        """The state of the compacted part that the log is known to be trimmed to."""

    async def run_if_due(self, policy: CompactionPolicy, unknown_ms: int) -> list[Passed]:
        """Compacts as long as it is due; appends older than `unknown_ms` are known to be in the log, or not."""
        partition, passes = self._partition, list[Passed]()
        await partition.confirm()
        if not origin.is_ours(partition):
            return passes
        await self._trim_log()
        try:
            while len(passes) < _MOST_PASSES and origin.is_ours(partition):
                timeline = partition.link.timeline
                if (end := await self._due_end(policy, self._settled_end(unknown_ms))) is None:
                    break
                done = await self._pass(policy, end, timeline)
                if done is None:
                    break
                passes.append(done)
                partition.compactions.passes += 1
                partition.compactions.removed_bytes += max(done.before_bytes - done.after_bytes, 0)
                log.info("a partition was compacted", extra={"partition": repr(partition), **done._asdict()})
            partition.compactions.waits_for_memory = False
        except NoRoom as error:
            if not partition.compactions.waits_for_memory:
                partition.compactions.waits_for_memory = True
                log.warning(
                    "compaction waits for memory in the store", extra={"partition": repr(partition), "why": str(error)}
                )
        return passes

    # -- when, and how far --------------------------------------------------------------------------------------

    def _settled_end(self, unknown_ms: int) -> int:
        """The end of the log without appends whose outcome is still unknown.

        This node knows the outcome of its own. So time counts only for entries that it read: another one wrote them.
        """
        now_s = self._partition.context.clock.monotonic_s()
        self._ends.append((now_s, self._partition.end))
        cutoff_s = now_s - unknown_ms / 1000
        while len(self._ends) > 1 and self._ends[1][0] <= cutoff_s:
            self._ends.popleft()
        settled = self._ends[0][1] if self._ends[0][0] <= cutoff_s else 0
        return self._partition.end if self._partition.read_end <= settled else settled

    async def _due_end(self, policy: CompactionPolicy, settled: int) -> int | None:
        """Up to where to compact now; None if it is not time."""
        partition, clean, index = self._partition, self._partition.clean, self._partition.index
        start, now_ms = max(clean.end, partition.local_start), partition.now_ms()
        end = max(min(settled, partition.last_base, partition.stable_end), start)
        if policy.min_lag_ms > 0:
            end = old_enough(index, start, end, now_ms - policy.min_lag_ms)
        dirty_bytes = index.bytes_up_to(end) - index.bytes_up_to(start) if end > start else 0
        first_ms = await self._first_time(start) if dirty_bytes and policy.max_lag_ms < _NO_LAG_LIMIT else -1
        clean_bytes = clean.size_since(partition.local_start)
        is_time = is_due(clean.state, policy, now_ms, clean_bytes, Dirt(dirty_bytes, first_ms))
        return end if is_time and (end > start or clean.end > partition.local_start) else None

    async def _first_time(self, start: int) -> int:
        async for entries in walk(self._partition.reads, self._partition.keys.log, start, None, 1):
            return entries[0].headers()[0].max_timestamp
        return -1

    # -- a pass -------------------------------------------------------------------------------------------------

    async def _pass(self, policy: CompactionPolicy, end: int, timeline: int) -> Passed | None:
        """Compacts up to an end at most; None if another node was at it meanwhile, or another server answers."""
        partition, clean = self._partition, self._partition.clean
        before, start, token = clean.stored, clean.end, secrets.token_hex(8)
        clean_bytes = clean.size_since(partition.local_start)
        rooms = Rooms(partition.shard.memory)
        await rooms.check(clean_bytes)
        if partition.link.timeline != timeline:
            return None
        await partition.save_producers()
        sieve = Sieve(partition, partition.now_ms(), policy.delete_retention_ms, Rest(partition.context.clock))
        seen = await self._note_keys(sieve, end, max(PASS_BYTES, clean_bytes))
        if seen.offset == start and not _has_old_tombstones(clean.state, sieve.now_ms):
            return None
        keys, made = partition.keys, [partition.keys.clean.new_log, partition.keys.clean.new_points]
        arguments: list[Argument] = [before, partition.taken_up, token]
        if not await self._run("begin_clean", [keys.meta, keys.log, *made], arguments, timeline):
            return None
        try:
            copy = await self._copy(sieve, rooms, seen.offset)
        except NoRoom:
            await self._run("drop_clean", [keys.meta, *made], [token], timeline)
            raise
        state = _state_behind(seen, token, partition.now_ms(), copy, sieve.horizon_ms)
        stored = msgspec.json.encode(state)
        is_installed = await self._run(
            "install_clean",
            [keys.meta, keys.log, *made, keys.clean.log, keys.clean.points],
            [*arguments, copy.index.entries, copy.points, stored],
            timeline,
        )
        if not is_installed:
            return None
        dirty_bytes = partition.index.bytes_up_to(seen.offset) - partition.index.bytes_up_to(start)
        clean.adopt(stored, state, copy.index)
        await self._trim_log()
        if partition.log_start > start:
            await clean.free_before(partition.log_start)  # it may have moved since it was copied
        return Passed(start, seen.offset, len(sieve.latest), clean_bytes + dirty_bytes, copy.index.size_bytes)

    async def _run(self, script: str, keys: list[str], arguments: list[Argument], timeline: int) -> bool:
        """Whether the script succeeded; if not, another writer changed the state meanwhile, or another server answers.

        A redirect is followed: a server that has the pass's token has all that was read before.
        """
        partition = self._partition
        if partition.link.timeline != timeline:
            return False
        reply = await partition.scripts.run(script, keys, arguments)
        partition.check_there(reply)
        if not reply:
            partition.doubt()
        return bool(reply)

    async def _note_keys(self, sieve: Sieve, end: int, most_bytes: int) -> Point:
        """Collects the keys behind the compacted part; returns the point behind the last collected entry."""
        partition, rest = self._partition, sieve.rest
        index, start = partition.index, partition.clean.end
        floor = index.floor(start)
        seen = Point(start, *(floor[1:4] if floor else (-1, 0, 0)))
        first_bytes = seen.size_bytes
        async for entries in walk(partition.reads, partition.keys.log, start, end, _PORTION_BYTES):
            for entry in entries:
                is_full = len(sieve.latest) >= MOST_KEYS or seen.size_bytes - first_bytes >= most_bytes
                if entry.end > end or (is_full and seen.offset > start):
                    return seen
                await sieve.note(entry)
                seen = _behind(seen, entry, index.floor(entry.base))
                await rest.take()
        return seen

    async def _copy(self, sieve: Sieve, rooms: Rooms, end: int) -> Copy:
        """Writes the remaining records of everything up to an end."""
        partition, clean, rest = self._partition, self._partition.clean, sieve.rest
        copy = Copy(partition.reads, clean.keys, rooms, partition.options.index_interval_bytes, sieve.now_ms)
        for key, stop in ((clean.keys.log, clean.end), (partition.keys.log, end)):
            first = 0 if key == clean.keys.log else clean.end
            async for entries in walk(partition.reads, key, first, stop, _PORTION_BYTES):
                for entry in entries:
                    if entry.end > partition.log_start and (left := await sieve.sift(entry)) is not None:
                        await copy.add(left)
                    await rest.take()
        await copy.flush()
        return copy

    # -- afterwards ---------------------------------------------------------------------------------------------

    async def _trim_log(self) -> None:
        """Removes copied entries from the log, including leftovers of an interrupted pass."""
        partition, stored, end = self._partition, self._partition.clean.stored, self._partition.clean.end
        if self._trimmed == stored:
            return
        rest = Rest(partition.context.clock)
        # Large entries have a node of the stream each; small ones share one, and go with it.
        entry_bytes = partition.index.size_bytes // max(partition.index.entries, 1)
        for limit in (max(_TRIM_BYTES // max(entry_bytes, 1), 1), _TRIM_ENTRIES):
            while await self._trim_step(stored, end, min(limit, _TRIM_ENTRIES)):
                await rest.take()
        if await self._trim_step(stored, end) is not None:
            self._trimmed = stored

    async def _trim_step(self, stored: bytes, end: int, limit: int = 0) -> int | None:
        """How many entries were removed; None if the server has another copy, or none: then the log is all there is."""
        partition = self._partition
        keys = [partition.keys.meta, partition.keys.log, partition.keys.index]
        removed: int | None = await partition.scripts.run("trim_to_clean", keys, [stored, f"{end}-0", limit])
        if removed is None:
            partition.doubt()
        else:
            partition.check_there(removed)
        return removed


def _behind(seen: Point, entry: Entry, floor: Point | None) -> Point:
    """The totals before the end of an entry; exact at a point of the index."""
    if floor is not None and floor.offset == entry.base:
        seen = floor
    newest = max((header.max_timestamp for header in entry.headers()), default=-1)
    return Point(
        entry.end,
        max(seen.max_timestamp, newest, entry.append_time),
        seen.size_bytes + len(entry.data),
        seen.entries + 1,
    )


def _has_old_tombstones(state: CleanState, now_ms: int) -> bool:
    return state.horizon_ms is not None and state.horizon_ms <= now_ms


def _state_behind(seen: Point, token: str, now_ms: int, copy: Copy, horizon_ms: int | None) -> CleanState:
    return CleanState(
        end=seen.offset,
        token=token,
        finished_ms=now_ms,
        max_timestamp=seen.max_timestamp,
        size_bytes=seen.size_bytes,
        entries=seen.entries,
        kept=copy.index.totals,
        horizon_ms=horizon_ms,
    )
