"""Retention of a tiered partition: what may leave Redis, and where the log starts.

Records leave Redis only as far as live files of the lake cover them without a break, which is read afresh just before:
not from a transaction, not on a client's word. The local start is stored before anything is removed, so between the
log start and it records are cold, never missing. What has not reached the lake stays in Redis whatever the limits say,
as in Kafka; what is in the lake and too old leaves the log at once, since only the log start has to move.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from headrace.cold_log import ColdAway, Held
from headrace.store import trim
from headrace.store.entries import LAST_SEQUENCE, base_of

if TYPE_CHECKING:
    from headrace.store.partition import Partition

log = logging.getLogger(__name__)


class Limits(NamedTuple):
    """Age and size of the whole log, and of its part in Redis; -1 for none."""

    retention_ms: int
    retention_bytes: int
    local_ms: int
    local_bytes: int


class Kind(Enum):
    """What keeps records in Redis; the same for all partitions that have it."""

    AWAY = "the lake is away"
    BEHIND = "the archive is behind"
    LESS = "the lake holds less than it did"


class Trouble(NamedTuple):
    """Why records stay in Redis although they should leave it."""

    kind: Kind
    why: str
    held_end: int = -1


async def enforce(partition: Partition, limits: Limits) -> Trouble | None:
    """Moves both starts as far as the limits ask and the lake allows; what stands in the way, if something does."""
    await partition.confirm()
    now_ms = partition.store.now_ms()
    expired = trim.expired_start(partition, now_ms, limits.retention_ms, limits.retention_bytes)
    local = trim.expired_start(partition, now_ms, limits.local_ms, limits.local_bytes)
    leaving = max(expired, min(local, partition.last_base))  # the last entry stays in any case
    is_due, has_cold = leaving > partition.local_start, partition.log_start < partition.trimmed_to
    if not is_due and not has_cold:
        return None
    try:
        held = await partition.store.cold.held(partition.cold_name, fresh=is_due)
        if held is None or not held.start <= partition.local_start <= held.end:
            return _less(partition, held)
        if is_due:
            await _move_starts(partition, min(expired, held.end), min(leaving, held.end))
        if held.start > partition.log_start:
            return _less(partition, held)
        if partition.log_start < partition.trimmed_to:
            await _move_cold_start(partition, now_ms, limits)
    except ColdAway as error:
        return Trouble(Kind.AWAY, str(error))
    if held.end < leaving:
        return Trouble(Kind.BEHIND, f"the lake holds it up to {held.end}, and {leaving} is due", held.end)
    return None


def _less(partition: Partition, held: Held | None) -> Trouble:
    """The lake does not hold what it has to."""
    log_start, local_start = partition.log_start, partition.local_start
    why = partition.store.cold.reason(partition.cold_name)
    found = f"holds offsets {held.start} to {held.end} of it" if held else f"has nothing of it ({why})"
    if held is None and log_start == local_start:
        return Trouble(Kind.BEHIND, f"the lake {found}")
    wanted = f"{log_start} to {local_start} are not in Redis any more" if log_start < local_start else ""
    return Trouble(Kind.LESS, f"the lake {found}, and {wanted or f'Redis begins at {local_start}'}")


async def _move_starts(partition: Partition, expired: int, leaving: int) -> None:
    if expired > partition.local_start:
        before = partition.log_start
        await trim.delete_before(partition, expired)
        _tell("old records removed", partition, before, partition.log_start)
    if leaving > partition.local_start:
        before = partition.local_start
        await _leave_to_lake(partition, leaving)
        if partition.local_start > before:
            _tell("records left to the lake", partition, before, partition.local_start)


async def _leave_to_lake(partition: Partition, offset: int) -> None:
    """Makes what lies wholly before an offset cold; the local start is the first offset of an entry that stays."""
    key = partition.keys.log
    holding = await partition.store.reads.call("XREVRANGE", key, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1)
    keep = min(base_of(holding[0]), partition.last_base) if holding else 0
    if keep > partition.local_start:
        await partition.save_producers()  # what it counts may be removed now
        await partition.save_local_start(keep)
        await trim.free_before(partition, keep)


async def _move_cold_start(partition: Partition, now_ms: int, limits: Limits) -> None:
    """Moves the log start inside the cold part."""
    oldest_ms = now_ms - limits.retention_ms if limits.retention_ms >= 0 else None
    most_bytes = max(limits.retention_bytes - partition.size_bytes, 0) if limits.retention_bytes >= 0 else None
    if oldest_ms is None and most_bytes is None:
        return
    before, stop = partition.log_start, partition.trimmed_to
    start = await partition.store.cold.retained_start(partition.cold_name, before, stop, oldest_ms, most_bytes)
    if before < start <= stop:
        await partition.save_start(start)
        _tell("old records removed", partition, before, start)


def _tell(what: str, partition: Partition, before: int, after: int) -> None:
    log.info(what, extra={"partition": repr(partition), "from_offset": before, "to_offset": after})
