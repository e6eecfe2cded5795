"""The archive's own maintenance: merges small files after a round, and periodically expires rows and deletes files.

Merging runs in Spark's tasks. Rows expire by a tiered topic's log start, files are deleted after two days. Maintenance
is optional: a problem with a table is reported once, and the table stays as it is.
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
    """The result of a merge: a file, or the reason why not, which concerns one partition only."""

    plan: MergePlan
    written: Written | None = None
    trouble: str | None = None


def merge_encoded(content: bytes) -> bytes:
    """The function that Spark maps over the merges, which are passed as bytes."""
    plan = msgspec.msgpack.decode(content, type=MergePlan)
    try:
        return msgspec.msgpack.encode(MergeOutcome(plan, merge(plan)))
    except (OSError, ValueError, DeltaError, pa.ArrowException) as error:
        return msgspec.msgpack.encode(MergeOutcome(plan, trouble=reason(error)))


class Schedule:
    """Periodic work per table, and when it was last done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[tuple[str, str], float] = {}

    def is_time(self, what: str, table: TopicTable, every_s: float) -> bool:
        """Whether it is due now; it then counts as done, unless `again` is called."""
        now, about = self._clock(), (what, table.place.uri)
        if now - self._last.get(about, float("-inf")) < every_s:
            return False
        self._last[about] = now
        return True

    def again(self, what: str, table: TopicTable) -> None:
        """It failed: it is due again at once."""
        self._last.pop((what, table.place.uri), None)


class Upkeep:
    """Maintains tables as needed. `say` gets the subject of a message, and the message."""

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
        """Does what is due; `JobFailed` if Spark fails."""
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
                continue  # another archive was first, or the topic was deleted: the next round will show
            except JobFailed:
                raise  # not the table's fault
            except (OSError, ValueError, DeltaError, KafkaError, BrokerUnreachable) as error:
                topic = table.identity.topic
                self._say(f"tidy {topic} {error}", f"upkeep of the table of {topic} failed: {reason(error)}")

    def clear(self, tables: Sequence[TopicTable], mark: str) -> None:
        """Removes the leftovers of our failed round."""
        for table in tables:
            with contextlib.suppress(OSError, ValueError, DeltaError):  # the periodic check by age finds it, too
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
