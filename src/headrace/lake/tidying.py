"""The archive's own upkeep: after a round small files are merged, now and then old rows expire and old files go.

Merging is done by Spark's tasks. Old is what a tiered topic's log start and two days say (`upkeep`). It is a courtesy
to readers and never a duty: whatever goes wrong here is said once and leaves the tables as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
from deltalake.exceptions import DeltaError

from headrace.client import BrokerUnreachable, Cluster
from headrace.lake.compaction import Merge, merge, plan_merges
from headrace.lake.place import reason
from headrace.lake.table import StaleArchive, TopicTable, Written
from headrace.lake.upkeep import DEFAULT_RETENTION_HOURS, expire, vacuum
from headrace.wire.errors import KafkaError

EXPIRE_EVERY_S = 600.0
VACUUM_EVERY_S = 86_400.0

OnSpark = Callable[[Sequence[bytes], Callable[[bytes], bytes]], list[bytes]]


def run_encoded(content: bytes) -> bytes:
    """What Spark maps over the merges, which travel as bytes."""
    return msgspec.msgpack.encode(merge(msgspec.msgpack.decode(content, type=Merge)))


class Tidying:
    """Looks after tables as they come to need it. `say` gets what it is about, and the sentence."""

    def __init__(
        self,
        cluster: Cluster,
        on_spark: OnSpark,
        say: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._on_spark, self._say, self._clock = cluster, on_spark, say, clock
        self._last: dict[tuple[str, str], float] = {}

    def round(self, tables: Sequence[TopicTable]) -> None:
        """Does what there is to do."""
        for table in tables:
            try:
                if plans := plan_merges(table):
                    self._merge(table, plans)
                if self._is_time("expire", table, EXPIRE_EVERY_S):
                    expire(table, self._cluster, None, dry_run=False)
                if self._is_time("vacuum", table, VACUUM_EVERY_S):
                    vacuum(table, DEFAULT_RETENTION_HOURS, dry_run=False)
            except StaleArchive:
                continue  # another archive was first, or the topic was deleted: the next round shows
            except (OSError, ValueError, DeltaError, KafkaError, BrokerUnreachable) as error:
                topic = table.identity.topic
                self._say(f"tidy {topic} {error}", f"the table of {topic} is not looked after: {reason(error)}")

    def _is_time(self, what: str, table: TopicTable, every_s: float) -> bool:
        now, about = self._clock(), (what, table.place.uri)
        if now - self._last.get(about, float("-inf")) < every_s:
            return False
        self._last[about] = now
        return True

    def _merge(self, table: TopicTable, plans: Sequence[Merge]) -> None:
        answers = self._on_spark([msgspec.msgpack.encode(plan) for plan in plans], run_encoded)
        merged = [msgspec.msgpack.decode(answer, type=Written) for answer in answers]
        table.replace([file for plan in plans for file in plan.files], merged, same_rows=True)
