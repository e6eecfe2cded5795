"""The archive's own upkeep: after a round small files are merged, now and then old rows expire and old files go.

Merging is done by Spark's tasks. Old is what a tiered topic's log start and two days say (`upkeep`). It is a courtesy
to readers and never a duty: whatever is wrong with a table is said once and leaves it as it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from headrace.client import BrokerUnreachable, Cluster
from headrace.lake.jobs import JobFailed
from headrace.lake.storage.place import Place, reason
from headrace.lake.table.delta_log import Written
from headrace.lake.table.snapshot import StaleArchive
from headrace.lake.table.table import TopicTable
from headrace.lake.typed.table import find_derived
from headrace.lake.upkeep.compaction import MergePlan, merge, plan_merges
from headrace.lake.upkeep.expiry import expire
from headrace.lake.upkeep.vacuum import DEFAULT_RETENTION_HOURS, InPlace, remove_leftovers, vacuum
from headrace.wire.errors import KafkaError

EXPIRE_EVERY_S = 600.0
LEFTOVERS_EVERY_S = 600.0
VACUUM_EVERY_S = 86_400.0

OnSpark = Callable[[Sequence[bytes], Callable[[bytes], bytes]], list[bytes]]


class MergeOutcome(msgspec.Struct, frozen=True):
    """What became of a merge: a file, or the reason why not, which is one partition's alone."""

    plan: MergePlan
    written: Written | None = None
    trouble: str | None = None


def merge_encoded(content: bytes) -> bytes:
    """What Spark maps over the merges, which travel as bytes."""
    plan = msgspec.msgpack.decode(content, type=MergePlan)
    try:
        return msgspec.msgpack.encode(MergeOutcome(plan, merge(plan)))
    except (OSError, ValueError, DeltaError, pa.ArrowException) as error:
        return msgspec.msgpack.encode(MergeOutcome(plan, trouble=reason(error)))


class Schedule:
    """What is done to each table now and then, and when it was last done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[tuple[str, str], float] = {}

    def is_time(self, what: str, table: TopicTable, every_s: float) -> bool:
        """Whether it is to be done now; it counts as done, unless `again` says otherwise."""
        now, about = self._clock(), (what, table.place.uri)
        if now - self._last.get(about, float("-inf")) < every_s:
            return False
        self._last[about] = now
        return True

    def again(self, what: str, table: TopicTable) -> None:
        """It could not be done: it is time for it at the next look."""
        self._last.pop((what, table.place.uri), None)


class Upkeep:
    """Looks after tables as they come to need it. `say` gets what it is about, and the sentence."""

    def __init__(
        self,
        lake: Place,
        cluster: Cluster,
        on_spark: OnSpark,
        say: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake, self._cluster = lake, cluster
        self._on_spark, self._say, self.schedule = on_spark, say, Schedule(clock)

    def round(self, tables: Sequence[TopicTable]) -> None:
        """Does what there is to do; `JobFailed` if Spark does not."""
        for table in tables:
            try:
                if plans := plan_merges(table):
                    self._merge(table, plans)
                if self.schedule.is_time("expire", table, EXPIRE_EVERY_S):
                    expire(table, self._cluster, None, dry_run=False)
                if self.schedule.is_time("leftovers", table, LEFTOVERS_EVERY_S):
                    for one in self._with_derived(table):
                        remove_leftovers(one.place)
                if self.schedule.is_time("vacuum", table, VACUUM_EVERY_S):
                    for one in self._with_derived(table):
                        vacuum(one, DEFAULT_RETENTION_HOURS, dry_run=False)
            except StaleArchive:
                continue  # another archive was first, or the topic was deleted: the next round shows
            except JobFailed:
                raise  # no table's fault
            except (OSError, ValueError, DeltaError, KafkaError, BrokerUnreachable) as error:
                topic = table.identity.topic
                self._say(f"tidy {topic} {error}", f"upkeep of the table of {topic} failed: {reason(error)}")

    def clear(self, tables: Sequence[TopicTable], mark: str) -> None:
        """Takes away what a failed round of ours left behind."""
        for table in tables:
            with contextlib.suppress(OSError, ValueError, DeltaError):  # the next look, by age, finds it too
                for one in self._with_derived(table):
                    remove_leftovers(one.place, mark)

    def _with_derived(self, table: TopicTable) -> list[InPlace]:
        return [table, *find_derived(self._lake, table.identity)]

    def _merge(self, table: TopicTable, plans: Sequence[MergePlan]) -> None:
        answers = self._on_spark([msgspec.msgpack.encode(plan) for plan in plans], merge_encoded)
        merged = [msgspec.msgpack.decode(answer, type=MergeOutcome) for answer in answers]
        done = [(one.plan, one.written) for one in merged if one.written is not None]
        if done:
            files, written = [file for plan, _ in done for file in plan.files], [one for _, one in done]
            table.replace(files, written, same_rows=True)
        for trouble in sorted({one.trouble for one in merged if one.trouble is not None}):
            raise OSError(trouble)
