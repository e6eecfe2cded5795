"""A round of the archive: plan what the tables lack, have tasks write it, and commit.

A round reads positions from the tables and end offsets from the broker, lets Spark's tasks write one file per
partition, and commits each table once. It keeps nothing else: after a crash at any point the next round plans from the
tables, and files without a commit have no effect. What stops a partition (a gap, an unreadable batch) or a topic (a
table that is not its own) stops only that one and is reported once. A temporary failure is a setback, which the loop
retries.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from headrace.client import Cluster
from headrace.client.admin import TopicInfo
from headrace.lake.archive.plan import Offsets, Plan, Standby, Topics, plan_partition
from headrace.lake.archive.repair import REPAIR_EVERY_S, Repair
from headrace.lake.archive.task import ArchiveTask, Outcome, Tails, in_sequence, of_one_history, split_task, task_runner
from headrace.lake.archive.troubles import Setbacks, Troubles
from headrace.lake.connecting import Connecting
from headrace.lake.fetching import OffsetRange
from headrace.lake.jobs import JobFailed, SparkJobs
from headrace.lake.storage.place import Place, reason
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.delta_log import Written
from headrace.lake.table.parquet_file import write_gap
from headrace.lake.table.snapshot import Identity, StaleArchive, TableRefused
from headrace.lake.table.table import TopicTable
from headrace.lake.typed.update import Derivation, DeriveRound
from headrace.lake.upkeep.continuous import Upkeep
from headrace.wire.special_times import EARLIEST

_LEAST_TASK_BYTES = 4 * 1024 * 1024
_FIRST_GUESS_BYTES = 100.0

Step = Literal["before-write", "after-write", "before-commit", "after-commit"]
Outcomes = Mapping[tuple[str, int], Sequence[Outcome]]


class ArchiveSettings(msgspec.Struct, frozen=True):
    """What to archive, where to, and how often. Without names: all topics with `remote.storage.enable=true`."""

    lake: Place
    topics: Sequence[str] = ()
    accept_gap: bool = False
    commit_every_s: float = 30.0
    commit_bytes: int = 128 * 1024 * 1024


class Round(msgspec.Struct):
    """The result of a round. `lag` is the number of offsets left, without stopped partitions."""

    rows: int = 0
    commits: int = 0
    fetched_bytes: int = 0
    lag: int = 0
    stopped: int = 0
    """Partitions that are not archived until somebody fixes their problem."""
    seconds: float = 0.0
    is_last: bool = False
    """Nothing is left of what was asked for."""
    typed: DeriveRound = msgspec.field(default_factory=DeriveRound)
    setbacks: Setbacks = msgspec.field(default_factory=Setbacks)


class Carrier:
    """Copies topics into tables, a round at a time. `at_step` is called between the steps."""

    def __init__(
        self,
        jobs: SparkJobs,
        cluster: Cluster,
        settings: ArchiveSettings,
        connecting: Connecting,
        troubles: Troubles,
        at_step: Callable[[Step], None],
    ) -> None:
        self._jobs, self._cluster, self._settings, self._connecting = jobs, cluster, settings, connecting
        self._troubles, self._at_step = troubles, at_step
        say_once = troubles.say_once
        self.topics = Topics(cluster, settings.topics, say_once, settings.lake.uri)
        self.derivation = Derivation(settings.lake, on_tasks=jobs.run, say=lambda said: say_once(said, said))
        self._upkeep = Upkeep(settings.lake, cluster, jobs.run, say_once)
        self._repair = Repair(
            self._fetch,
            say_once,
            lambda table: self._upkeep.schedule.again("repair", table),
            accept_gap=settings.accept_gap,
        )
        self._standby = Standby(settings.commit_every_s)
        self._tables: dict[str, TopicTable] = {}
        self._known: list[TopicInfo] = []
        self._offset_bytes: dict[str, float] = {}
        self._setbacks = Setbacks()
        self._tails = Tails()

    def round(self, ends: Offsets | None = None) -> Round:
        """One round over all topics, up to `ends` if given."""
        began, done = time.monotonic(), Round()
        self._setbacks = done.setbacks
        topics = self._known = self.topics.look()
        latest = self.topics.ends(topics)
        if ends is not None:
            latest = {partition: min(end, latest[partition]) for partition, end in ends.items() if partition in latest}
        plans = self._plan(topics, latest, done.setbacks, may_wait=ends is None)
        is_time = self._upkeep.schedule.is_time
        if unseen := [table for table in self._ours(topics, ends) if is_time("repair", table, REPAIR_EVERY_S)]:
            self._repair.round(unseen, lambda: (self.topics.local_starts(topics), latest), done.setbacks)
        self._carry(plans, done)
        done.lag, done.stopped = self._lag_of(latest), len(self._troubles.stopped)
        self._look_after(self._ours(topics, ends), done)
        done.seconds = time.monotonic() - began
        return done

    def _carry(self, plans: Sequence[Plan], done: Round) -> None:
        """Writes the planned ranges to files and commits them to the tables."""
        tasks = self._tasks(plans)
        if not tasks and not any(plan.gap for plan in plans):
            return
        self._at_step("before-write")
        outcomes = self._write(tasks)
        self._at_step("after-write")
        for topic in sorted({plan.topic for plan in plans}):
            try:
                self._commit(self._tables[topic], [plan for plan in plans if plan.topic == topic], outcomes, done)
            except (OSError, ValueError, DeltaError) as error:
                done.setbacks.add(topic, reason(error), error)

    def _look_after(self, tables: Sequence[TopicTable], done: Round) -> None:
        """Merges small files, deletes old ones, and updates typed tables."""
        try:
            self._upkeep.round(tables)
            for table in tables:
                self._type(table, done)
        except JobFailed as error:
            done.setbacks.add("upkeep and typed tables", reason(error), error)

    def _ours(self, topics: Sequence[TopicInfo], ends: Offsets | None) -> list[TopicTable]:
        """The tables that this archive writes, not another one."""
        tables = [self._tables[topic.name] for topic in topics if topic.name in self._tables]
        return [table for table in tables if ends is not None or not self._stands_by(table)]

    def _type(self, table: TopicTable, done: Round) -> None:
        """Updates the typed table from the raw one. Its problems are reported and never stop the archive."""
        topic, total = table.identity.topic, done.typed
        try:
            typed = self.derivation.round([table])
        except JobFailed:
            raise
        except (OSError, DeltaError) as error:
            done.setbacks.add(f"the typed table of {topic}", reason(error), error)
            return
        except (ValueError, KeyError) as error:
            self._troubles.say_once(
                f"typed {topic} {error}", f"the typed table of {topic} is not updated: {reason(error)}"
            )
            return
        if why := self.derivation.setbacks.get(topic):
            done.setbacks.add(f"the typed table of {topic}", why, OSError(why))
        total.rows += typed.rows
        total.rejected += typed.rejected
        total.lag += typed.lag
        total.commits += typed.commits

    # Between rounds

    def waiting_bytes(self) -> float:
        """Estimated bytes to archive, by the bytes per offset of each topic so far, without setbacks."""
        return sum(
            self._lag_of({partition: end}) * self._offset_bytes.get(partition[0], _FIRST_GUESS_BYTES)
            for partition, end in self.topics.ends(self._known).items()
            if not self._setbacks.have_met(*partition)
        )

    def _lag_of(self, ends: Offsets) -> int:
        """Offsets still to be archived, without stopped partitions."""
        return sum(
            max(0, end - self._tables[name].position(p))
            for (name, p), end in ends.items()
            if name in self._tables and (name, p) not in self._troubles.stopped
        )

    def forget(self) -> None:
        """Forgets the topics after a failure: one may have been deleted, or the broker restarts."""
        self._known = []

    def clear(self) -> None:
        """Removes the files of a failed round: the next one writes them again."""
        self._upkeep.clear([*self._tables.values()], self._jobs.mark)

    # Planning

    def _plan(self, topics: Sequence[TopicInfo], latest: Offsets, setbacks: Setbacks, *, may_wait: bool) -> list[Plan]:
        earliest = self.topics.offsets(topics, EARLIEST)
        self._troubles.look_again()
        plans: list[Plan] = []
        for topic in topics:
            table = self._open(topic, earliest, setbacks)
            if table is None:
                continue
            if may_wait and self._stands_by(table):
                continue
            for partition in sorted(p.index for p in topic.partitions):
                at = (topic.name, partition)
                if at not in latest:
                    continue
                plan = plan_partition(table, partition, earliest[at], latest[at], accept_gap=self._settings.accept_gap)
                if plan.trouble:
                    self._troubles.stop(topic.name, partition, plan.trouble)
                elif plan.start < plan.end or plan.gap:
                    plans.append(plan)
        return plans

    def _stands_by(self, table: TopicTable) -> bool:
        return self._standby.waits(table.identity.topic, table.version)

    def _open(self, topic: TopicInfo, earliest: Offsets, setbacks: Setbacks) -> TopicTable | None:
        """The topic's table; None if it cannot be written to now, which does not affect other topics."""
        try:
            return self._table(topic, earliest)
        except TableRefused as refused:
            self._troubles.stop_topic(topic.name, (p.index for p in topic.partitions), reason(refused))
        except (OSError, DeltaError) as error:
            setbacks.add(topic.name, reason(error), error)
        self._tables.pop(topic.name, None)
        return None

    def _table(self, topic: TopicInfo, earliest: Offsets) -> TopicTable:
        assert self._cluster.cluster_id is not None
        identity = Identity(self._cluster.cluster_id, topic.name, topic.topic_id)
        table = self._tables.get(topic.name)
        if table is not None and table.identity == identity:
            with contextlib.suppress(StaleArchive):
                table.refresh()
                return table
        starts = {p.index: earliest[topic.name, p.index] for p in topic.partitions}
        table = self._tables[topic.name] = open_or_create(self._settings.lake, identity, starts)
        return table

    def _tasks(self, plans: Sequence[Plan]) -> list[ArchiveTask]:
        wanted = [plan for plan in plans if plan.start < plan.end]
        most_bytes = max(_LEAST_TASK_BYTES, self._settings.commit_bytes // max(1, len(wanted)))
        tasks_each = self._jobs.parallelism // max(1, len(wanted)) if wanted else 0
        return [piece for plan in wanted for piece in self._pieces(plan, most_bytes, tasks_each)]

    def _pieces(self, p: Plan, most_bytes: int, tasks: int) -> list[ArchiveTask]:
        """The tasks of a plan: one, or several consecutive ones while there are tasks to spare."""
        table, dense = self._tables[p.topic], self.topics.is_dense(p.topic)
        try:
            tail = self._tails.of(table, p.partition)
        except (OSError, pa.ArrowException) as error:
            self._troubles.stop(p.topic, p.partition, f"the last file of its table cannot be read: {reason(error)}")
            return []
        offsets = OffsetRange(p.topic, p.partition, p.start, p.end)
        whole = ArchiveTask(offsets, p.topic_id, table.place, most_bytes, tail, dense)
        return split_task(whole, self._offset_bytes.get(p.topic), tasks, _LEAST_TASK_BYTES)

    # Writing

    def _write(self, tasks: Sequence[ArchiveTask]) -> Outcomes:
        if not tasks:
            return {}
        outcomes = self._fetch(tasks)
        found: dict[tuple[str, int], list[Outcome]] = {}
        for outcome in sorted(outcomes, key=lambda outcome: outcome.task.offsets.start):
            found.setdefault((outcome.task.offsets.topic, outcome.task.offsets.partition), []).append(outcome)
        return {at: of_one_history(self._cluster, in_sequence(of_one)) for at, of_one in found.items()}

    def _fetch(self, tasks: Sequence[ArchiveTask]) -> list[Outcome]:
        answers = self._jobs.run([msgspec.msgpack.encode(task) for task in tasks], task_runner(self._connecting))
        return [msgspec.msgpack.decode(answer, type=Outcome) for answer in answers]

    def _commit(self, table: TopicTable, plans: Sequence[Plan], outcomes: Outcomes, done: Round) -> None:
        topic = table.identity.topic
        written: list[Written] = []
        for plan in plans:
            if plan.gap:
                written.append(self._gap(table, plan.partition, plan.gap, ""))
            for outcome in outcomes.get((topic, plan.partition), ()):
                self._note_trouble(outcome, done.setbacks)
                if outcome.lost:
                    written.append(self._gap(table, plan.partition, outcome.lost, ", lost by the broker's store,"))
                if outcome.written is not None:
                    written.append(outcome.written)
        if not written:
            return
        self._at_step("before-commit")
        try:
            table.commit(written)
        except StaleArchive:
            with contextlib.suppress(StaleArchive):
                table.refresh()
            self._standby.lost(topic, table.version)
            self._troubles.say_once(f"standby {topic}", f"another archive writes the table of {topic}: standing by")
            return
        self._standby.won(topic)
        self._at_step("after-commit")
        committed = [outcome for (of, _), sequence in outcomes.items() if of == topic for outcome in sequence]
        for outcome in committed:
            if outcome.written is not None:
                self._tails.note(topic, outcome.task.offsets.partition, outcome.written.file.path, outcome.tail)
        fetched_bytes = sum(outcome.fetched_bytes for outcome in committed)
        done.rows += sum(one.file.rows for one in written)
        done.commits += 1
        done.fetched_bytes += fetched_bytes
        if fetched_bytes:
            # Not per row: where offsets are times, few of them are records.
            self._offset_bytes[topic] = fetched_bytes / sum(one.file.end - one.file.start for one in written)

    def _gap(self, table: TopicTable, partition: int, gap: tuple[int, int], why: str) -> Written:
        name = f"{table.identity.topic}-{partition}"
        self._troubles.say(f"{name}: offsets {gap[0]} to {gap[1] - 1}{why} are recorded as a gap")
        return write_gap(table.place, partition, *gap)

    def _note_trouble(self, outcome: Outcome, setbacks: Setbacks) -> None:
        topic, partition = outcome.task.offsets.topic, outcome.task.offsets.partition
        if outcome.trouble is not None and outcome.passes:
            setbacks.add(f"{topic}-{partition}", outcome.trouble)
        elif outcome.trouble is not None:
            self._troubles.stop(topic, partition, outcome.trouble)
