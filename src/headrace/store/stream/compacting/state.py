"""The state that one compaction leaves for the next, and when the next one is due. Pure.

Stored as JSON in the field `compaction` of the partition's meta. Losing it costs work, never a record.
"""

from __future__ import annotations

import msgspec

from headrace.store.partition.old_records import CompactionPolicy
from headrace.store.stream.ids import START, StreamId, parse_id

_CHECKPOINTS_PER_RETENTION = 16
_TOMBSTONE_ROUNDS_PER_RETENTION = 10


class CompactionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Up to `upto` each key is there once, but for `leftovers`."""

    upto: str = "0-0"
    clean: int = 0
    """Entries up to there."""
    added: int | None = None
    """How many entries the stream had ever had up to there, where the server counts them."""
    finished_ms: int = 0
    leftovers: list[str] = []
    """Entries that are replaced and could not go yet: they were pending."""
    checkpoints: list[tuple[int, str]] = []
    """When compactions ended, and up to where: tombstones count from the first one that passed them."""
    tombstones_since_ms: int | None = None
    """When the oldest tombstone that is left was passed."""

    def added_since(self, length: int, entries_added: int | None) -> int:
        """The number of entries since then, by the server's counter or by the stream's length."""
        if self.added is not None and entries_added is not None:
            return min(length, max(entries_added - self.added, 0))
        return max(length - self.clean, 0)

    def is_due(
        self, policy: CompactionPolicy, now_ms: int, length: int, added: int, first_ms: int | None, last_ms: int
    ) -> bool:
        """Whether to compact, by Kafka's rules: enough is new, something new waits too long, or tombstones are old.

        Of what is new, as much is old enough as entries that came evenly would be.
        """
        if first_ms is not None and first_ms <= now_ms - policy.min_lag_ms:
            if now_ms - first_ms > policy.max_lag_ms:
                return True
            span_ms = max(last_ms - first_ms, 1)
            share = min(1.0, (now_ms - policy.min_lag_ms - first_ms + 1) / span_ms) if policy.min_lag_ms else 1.0
            cleanable = added * share
            if cleanable and cleanable / (length - added + cleanable) > policy.dirty_ratio:
                return True
        return self._has_old_tombstones(policy, now_ms)

    def _has_old_tombstones(self, policy: CompactionPolicy, now_ms: int) -> bool:
        """A look at the whole stream for tombstones alone is not made for each one of them."""
        if self.tombstones_since_ms is None or now_ms < self.tombstones_since_ms + policy.delete_retention_ms:
            return False
        return now_ms >= self.finished_ms + policy.delete_retention_ms // _TOMBSTONE_ROUNDS_PER_RETENTION

    def tombstone_horizon(self, passed_before_ms: int) -> StreamId:
        """Up to here tombstones were passed by that time, and nothing that they delete is left before them."""
        passed = [parse_id(upto) for ms, upto in self.checkpoints if ms <= passed_before_ms]
        horizon = max(passed, default=START)
        return min([horizon, *map(parse_id, self.leftovers)])

    def following(
        self,
        policy: CompactionPolicy,
        now_ms: int,
        *,
        upto: str,
        clean: int,
        added: int | None,
        leftovers: list[str],
        first_tombstone: StreamId | None,
    ) -> CompactionState:
        """The state after a compaction."""
        checkpoints = self._checkpoints_with(now_ms, upto, policy.delete_retention_ms)
        since = None
        if first_tombstone is not None:
            since = next((ms for ms, passed in checkpoints if parse_id(passed) >= first_tombstone), now_ms)
        return CompactionState(
            upto=upto,
            clean=clean,
            added=added,
            finished_ms=now_ms,
            leftovers=leftovers,
            checkpoints=checkpoints,
            tombstones_since_ms=since,
        )

    def _checkpoints_with(self, now_ms: int, upto: str, retention_ms: int) -> list[tuple[int, str]]:
        """A few per retention time: of those close together the last one stands for all. None is beyond the newest."""
        every_ms = retention_ms // _CHECKPOINTS_PER_RETENTION + 1
        before = [(ms, min(passed, upto, key=parse_id)) for ms, passed in self.checkpoints]
        by_time = {ms // every_ms: (ms, passed) for ms, passed in [*before, (now_ms, upto)]}
        kept = [by_time[at] for at in sorted(by_time)]
        old = [at for at, (ms, _) in enumerate(kept) if ms <= now_ms - retention_ms]
        return kept[old[-1] :] if old else kept


def parse_state(stored: bytes | None) -> CompactionState:
    """The stored state; an unreadable one counts as none."""
    if stored is None:
        return CompactionState()
    try:
        return msgspec.json.decode(stored, type=CompactionState)
    except msgspec.MsgspecError:
        return CompactionState()
