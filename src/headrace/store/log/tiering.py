"""Retention of a tiered partition: which records may leave Redis, and where the log starts.

Records leave Redis only as far as live files of the lake cover them without a break, which is checked right before each
trim: not from a transaction, not on a client's word. The local start is stored before anything is removed, so records
between the log start and the local start are cold, never missing. Records that are not yet in the lake stay in Redis
whatever the limits say, as in Kafka; records in the lake that are too old leave the log at once, since only the log
start has to move.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.cold_log import ColdAway, Held
from headrace.store.log import trim
from headrace.store.partition.entries import LAST_SEQUENCE, base_of
from headrace.store.partition.old_records import Limits, Trouble, TroubleKind

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

log = logging.getLogger(__name__)


async def enforce(partition: LogPartition, limits: Limits) -> Trouble | None:
    """Moves both starts as far as limits and lake allow; returns the obstacle, if any."""
    await partition.confirm()
    now_ms = partition.now_ms()
    expired = trim.expired_start(partition, now_ms, limits.retention_ms, limits.retention_bytes)
    local = trim.expired_start(partition, now_ms, limits.local_ms, limits.local_bytes)
    leaving = max(expired, min(local, partition.last_base))  # the last entry stays in any case
    is_due, has_cold = leaving > partition.local_start, partition.log_start < partition.trimmed_to
    if not is_due and not has_cold:
        return None
    try:
        held = await partition.cold.held(partition.cold_name, fresh=is_due)
        if held is None or not held.start <= partition.local_start <= held.end:
            return _less(partition, held)
        if is_due:
            await _move_starts(partition, min(expired, held.end), min(leaving, held.end))
        if held.start > partition.log_start:
            return _less(partition, held)
        if partition.log_start < partition.trimmed_to:
            await _move_cold_start(partition, now_ms, limits)
    except ColdAway as error:
        return Trouble(TroubleKind.AWAY, str(error))
    if held.end < leaving:
        why = f"the lake holds offsets up to {held.end} of it, but {leaving} is due"
        return Trouble(TroubleKind.BEHIND, why, held.end)
    return None


def _less(partition: LogPartition, held: Held | None) -> Trouble:
    """The lake lacks records that it must have."""
    log_start, local_start = partition.log_start, partition.local_start
    why = partition.cold.reason(partition.cold_name)
    found = f"holds offsets {held.start} to {held.end} of it" if held else f"has no records of it ({why})"
    if held is None and log_start == local_start:
        return Trouble(TroubleKind.BEHIND, f"the lake {found}")
    wanted = f"{log_start} to {local_start} are no longer in Redis" if log_start < local_start else ""
    return Trouble(TroubleKind.LESS, f"the lake {found}, but {wanted or f'Redis begins at {local_start}'}")


async def _move_starts(partition: LogPartition, expired: int, leaving: int) -> None:
    if expired > partition.local_start:
        before = partition.log_start
        await trim.delete_before(partition, expired)
        _tell("old records removed", partition, before, partition.log_start)
    if leaving > partition.local_start:
        before = partition.local_start
        await _leave_to_lake(partition, leaving)
        if partition.local_start > before:
            _tell("records moved to the lake", partition, before, partition.local_start)


async def _leave_to_lake(partition: LogPartition, offset: int) -> None:
    """Drops entries wholly before an offset from Redis; the local start is the first remaining entry."""
    key = partition.keys.log
    holding = await partition.reads.call("XREVRANGE", key, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1)
    keep = min(base_of(holding[0]), partition.last_base) if holding else 0
    if keep > partition.local_start and partition.is_in_step:
        await partition.save_producers()  # what it counts may be removed now
        await partition.save_local_start(keep)
        await trim.free_before(partition, keep)


async def _move_cold_start(partition: LogPartition, now_ms: int, limits: Limits) -> None:
    """Moves the log start inside the cold part."""
    oldest_ms = now_ms - limits.retention_ms if limits.retention_ms >= 0 else None
    most_bytes = max(limits.retention_bytes - partition.size_bytes, 0) if limits.retention_bytes >= 0 else None
    if oldest_ms is None and most_bytes is None:
        return
    before, stop = partition.log_start, partition.trimmed_to
    start = await partition.cold.retained_start(partition.cold_name, before, stop, oldest_ms, most_bytes)
    if before < start <= stop:
        await partition.save_start(start)
        _tell("old records removed", partition, before, start)


def _tell(what: str, partition: LogPartition, before: int, after: int) -> None:
    log.info(what, extra={"partition": repr(partition), "from_offset": before, "to_offset": after})
