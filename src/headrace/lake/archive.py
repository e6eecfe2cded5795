"""The archive: a loop on the driver that carries topics into their tables, each record once.

A round reads positions from the tables, asks the broker how far the partitions go, lets Spark's tasks write one
file per partition, and commits each table once. Nothing else is kept: after a crash at any point the next round plans
from what the tables hold, and files that no commit names are nobody's. What stops a partition (a gap, a batch that
cannot be read) stops that one alone and is said once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.client.admin import EARLIEST, LATEST, TopicInfo
from headrace.lake.catalogue import open_or_create
from headrace.lake.connecting import Connecting
from headrace.lake.history import CLEANUP, FORMAT, Tails, is_dense
from headrace.lake.parquet_file import write_gap
from headrace.lake.place import Place, reason
from headrace.lake.plan import Plan, plan_partition
from headrace.lake.range_task import Outcome, Range, in_sequence, of_one_history, split, task
from headrace.lake.standby import Standby
from headrace.lake.table import Identity, StaleArchive, TopicTable, Written
from headrace.lake.tidying import Tidying
from headrace.lake.typed import TypedRound, Typing
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOINS_BY_CONFIG = "remote.storage.enable"
LOOK_EVERY_S = 1.0
FRUITLESS_ROUNDS = 20
FRUITLESS_PAUSE_S = 0.25
_LEAST_TASK_BYTES = 4 * 1024 * 1024
_FIRST_GUESS_BYTES = 100.0

Step = Literal["before-write", "after-write", "before-commit", "after-commit"]
Offsets = Mapping[tuple[str, int], int]
Outcomes = Mapping[tuple[str, int], Sequence[Outcome]]


class Settings(msgspec.Struct, frozen=True):
    """What to archive, where to, and how often. Topics join by name, and those with `remote.storage.enable=true`."""

    lake: Place
    topics: Sequence[str] = ()
    accept_gap: bool = False
    commit_every_s: float = 30.0
    commit_bytes: int = 128 * 1024 * 1024


class Stuck(OSError):
    """Records that the broker said to have do not come."""


class JobFailed(OSError):
    """Spark gave up on a round; nothing of it was committed."""


class Round(msgspec.Struct):
    """What one round did. `lag` is what is left, in offsets, but for partitions that are stopped."""

    rows: int = 0
    commits: int = 0
    fetched_bytes: int = 0
    lag: int = 0
    typed: TypedRound = msgspec.field(default_factory=TypedRound)


class Archive:
    """Carries topics into tables. `say` gets sentences for a person, `at_step` is called between the steps."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: Cluster,
        settings: Settings,
        *,
        connecting: Connecting | None = None,
        say: Callable[[str], None] = lambda sentence: None,
        progress: Callable[[Round], None] = lambda done: None,
        at_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self._spark, self._cluster, self._settings = spark, cluster, settings
        self._say, self._progress, self._at_step = say, progress, at_step
        self._admin = Admin(cluster)
        bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
        # Tasks reach the cluster as the driver does.
        self._connecting = msgspec.structs.replace(connecting or Connecting(bootstrap), client_id="headrace-archive")
        self._tables: dict[str, TopicTable] = {}
        self._standby = Standby(settings.commit_every_s)
        self._said: set[str] = set()
        self.troubles: dict[tuple[str, int], str] = {}
        """What stops a partition, by topic and partition; it is looked at again in each round."""
        self._tidying = Tidying(cluster, self._on_spark, self._say_once)
        self.typing = Typing(settings.lake, on_tasks=self._on_spark, say=lambda said: self._say_once(said, said))
        self._known: list[TopicInfo] = []
        self._offset_bytes: dict[str, float] = {}
        self._dense: dict[str, bool] = {}
        self._tails = Tails()

    # Running

    def run_once(self) -> None:
        """Archives all that the topics held when it was called."""
        ends = self._ends(self._topics())
        fruitless = 0
        while fruitless < FRUITLESS_ROUNDS:
            done = self.round(ends)
            self._progress(done)
            if done.lag == done.typed.lag == 0:
                return
            fruitless = 0 if done.commits or done.typed.commits else fruitless + 1
            if fruitless:
                time.sleep(FRUITLESS_PAUSE_S)
        raise Stuck(
            f"{done.lag or done.typed.lag:,} offsets did not come in {fruitless} tries; "
            "is the broker reachable for Spark's tasks?"
        )

    def run(self, stop: threading.Event) -> None:
        """Archives what comes, until it is told to stop: each `commit_every_s`, or as soon as enough is there."""
        last = float("-inf")
        while not stop.is_set():
            try:
                enough = self._waiting_bytes() >= self._settings.commit_bytes
                if enough or time.monotonic() - last >= self._settings.commit_every_s:
                    last = time.monotonic()
                    done = self.round()
                    self._progress(done)
                    if done.typed.commits and done.typed.lag:
                        last = float("-inf")
                    self._said.discard("away")
            except (BrokerUnreachable, KafkaError) as error:
                # A topic that was just deleted, a broker that restarts: the next look shows how it is now.
                self._known = []
                self._say_once("away", f"waiting for the broker: {error}")
            stop.wait(min(LOOK_EVERY_S, self._settings.commit_every_s))

    def round(self, ends: Offsets | None = None) -> Round:
        """One round over all topics, up to `ends` if they are given."""
        topics = self._known = self._topics()
        latest = self._ends(topics)
        if ends is not None:
            latest = {partition: min(end, latest[partition]) for partition, end in ends.items() if partition in latest}
        plans = self._plan(topics, latest, may_wait=ends is None)
        done = Round()
        ranges = self._ranges(plans)
        if ranges or any(plan.gap for plan in plans):
            self._at_step("before-write")
            outcomes = self._write(ranges)
            self._at_step("after-write")
            for topic in sorted({plan.topic for plan in plans}):
                self._commit(self._tables[topic], [plan for plan in plans if plan.topic == topic], outcomes, done)
        done.lag = self._lag_of(latest)
        tables = [self._tables[topic.name] for topic in topics if topic.name in self._tables]
        ours = [table for table in tables if ends is not None or not self._stands_by(table)]
        self._tidying.round(ours)
        done.typed = self._type(ours)
        return done

    def _type(self, tables: Sequence[TopicTable]) -> TypedRound:
        """Typed tables follow the raw ones. What is wrong with them is said, and never stops the archive."""
        try:
            return self.typing.round(tables)
        except (OSError, ValueError, DeltaError) as error:
            self._say_once(f"typed {error}", f"typed tables are not kept up: {reason(error)}")
            return TypedRound()

    # Looking

    def _topics(self) -> list[TopicInfo]:
        """The topics to archive, as they are now."""
        named = set(self._settings.topics)
        found = [topic for topic in self._admin.list_topics() if self._joins(topic, topic.name in named)]
        if not named and not found:
            self._say_once("none", f"no topic to archive: name some with --topics, or set {JOINS_BY_CONFIG}=true")
        for name in named - {topic.name for topic in found}:
            self._say_once(f"no {name}", f"there is no topic {name} yet")
        return found

    def _joins(self, topic: TopicInfo, is_named: bool) -> bool:
        """Whether a topic is to be archived; what its configs say of it is kept."""
        if topic.is_internal and not is_named:
            return False
        entries = self._admin.describe_configs(topic.name, keys=[JOINS_BY_CONFIG, CLEANUP, FORMAT])
        self._dense[topic.name] = is_dense(entries)
        return is_named or any(entry.name == JOINS_BY_CONFIG and entry.value == "true" for entry in entries)

    def _ends(self, topics: Sequence[TopicInfo]) -> dict[tuple[str, int], int]:
        return self._offsets(topics, LATEST)

    def _offsets(self, topics: Sequence[TopicInfo], where: int) -> dict[tuple[str, int], int]:
        wanted = {(topic.name, p.index): where for topic in topics for p in topic.partitions}
        found = self._admin.list_offsets(wanted, read_committed=True) if wanted else {}
        return {partition: at.offset for partition, at in found.items()}

    def _waiting_bytes(self) -> float:
        """About how much is to be archived, by what an offset of each topic was worth so far."""
        return sum(
            self._lag_of({partition: end}) * self._offset_bytes.get(partition[0], _FIRST_GUESS_BYTES)
            for partition, end in self._ends(self._known).items()
        )

    def _lag_of(self, ends: Offsets) -> int:
        """What is still to be archived, leaving out what is stopped."""
        return sum(
            max(0, end - self._tables[name].position(p))
            for (name, p), end in ends.items()
            if name in self._tables and (name, p) not in self.troubles
        )

    # Planning

    def _plan(self, topics: Sequence[TopicInfo], latest: Offsets, *, may_wait: bool) -> list[Plan]:
        earliest = self._offsets(topics, EARLIEST)
        self.troubles.clear()
        plans: list[Plan] = []
        for topic in topics:
            table = self._table(topic, earliest)
            if may_wait and self._stands_by(table):
                continue
            for partition in sorted(p.index for p in topic.partitions):
                at = (topic.name, partition)
                if at not in latest:
                    continue
                plan = plan_partition(table, partition, earliest[at], latest[at], accept_gap=self._settings.accept_gap)
                if plan.trouble:
                    self._stop(topic.name, partition, plan.trouble)
                elif plan.start < plan.end or plan.gap:
                    plans.append(plan)
        return plans

    def _stands_by(self, table: TopicTable) -> bool:
        return self._standby.waits(table.identity.topic, table.version)

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

    def _ranges(self, plans: Sequence[Plan]) -> list[Range]:
        wanted = [plan for plan in plans if plan.start < plan.end]
        most_bytes = max(_LEAST_TASK_BYTES, self._settings.commit_bytes // max(1, len(wanted)))
        tasks_each = self._spark.sparkContext.defaultParallelism // max(1, len(wanted))
        return [piece for plan in wanted for piece in self._pieces(plan, most_bytes, tasks_each)]

    def _pieces(self, p: Plan, most_bytes: int, tasks: int) -> list[Range]:
        """The ranges of a plan: one, or several that follow each other while there are tasks to spare."""
        table, dense = self._tables[p.topic], self._dense[p.topic]
        try:
            tail = self._tails.of(table, p.partition)
        except (OSError, pa.ArrowException) as error:
            self._stop(p.topic, p.partition, f"the last file of its table cannot be read: {reason(error)}")
            return []
        whole = Range(p.topic, p.topic_id, p.partition, p.start, p.end, table.place, most_bytes, tail, dense)
        return split(whole, self._offset_bytes.get(p.topic), tasks, _LEAST_TASK_BYTES)

    # Writing

    def _write(self, ranges: Sequence[Range]) -> Outcomes:
        if not ranges:
            return {}
        answers = self._on_spark([msgspec.msgpack.encode(r) for r in ranges], task(self._connecting))
        outcomes = [msgspec.msgpack.decode(answer, type=Outcome) for answer in answers]
        found: dict[tuple[str, int], list[Outcome]] = {}
        for outcome in sorted(outcomes, key=lambda outcome: outcome.range.start):
            found.setdefault((outcome.range.topic, outcome.range.partition), []).append(outcome)
        return {at: of_one_history(self._cluster, in_sequence(of_one)) for at, of_one in found.items()}

    def _on_spark(self, tasks: Sequence[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
        # Over an RDD: the DataFrame way, mapInArrow, would ask for pandas and use none of it.
        try:
            return self._spark.sparkContext.parallelize(tasks, len(tasks)).map(run).collect()
        except Exception as error:
            raise JobFailed(f"Spark could not run the tasks: {str(error).strip().splitlines()[-1]}") from error

    def _commit(self, table: TopicTable, plans: Sequence[Plan], outcomes: Outcomes, done: Round) -> None:
        topic = table.identity.topic
        written: list[Written] = []
        for plan in plans:
            if plan.gap:
                written.append(self._gap(table, plan.partition, plan.gap, ""))
            for outcome in outcomes.get((topic, plan.partition), ()):
                self._say_trouble(outcome)
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
            self._say_once(f"standby {topic}", f"another archive writes the table of {topic}: standing by")
            return
        self._standby.won(topic)
        self._at_step("after-commit")
        committed = [outcome for (of, _), sequence in outcomes.items() if of == topic for outcome in sequence]
        for outcome in committed:
            if outcome.written is not None:
                self._tails.note(topic, outcome.range.partition, outcome.written.file.path, outcome.tail)
        fetched_bytes = sum(outcome.fetched_bytes for outcome in committed)
        done.rows += sum(one.file.rows for one in written)
        done.commits += 1
        done.fetched_bytes += fetched_bytes
        if fetched_bytes:
            # Not by the row: where offsets are made of time, few of them are records.
            self._offset_bytes[topic] = fetched_bytes / sum(one.file.end - one.file.start for one in written)

    def _gap(self, table: TopicTable, partition: int, gap: tuple[int, int], why: str) -> Written:
        name = f"{table.identity.topic}-{partition}"
        self._say(f"{name}: offsets {gap[0]} to {gap[1] - 1}{why} are recorded as a gap")
        return write_gap(table.place, partition, *gap)

    # Saying

    def _say_trouble(self, outcome: Outcome) -> None:
        topic, partition = outcome.range.topic, outcome.range.partition
        if outcome.trouble is not None and outcome.passes:
            self._say(f"{topic}-{partition}: {outcome.trouble}; trying again")
        elif outcome.trouble is not None:
            self._stop(topic, partition, outcome.trouble)

    def _stop(self, topic: str, partition: int, why: str) -> None:
        self.troubles[topic, partition] = why
        self._say_once(f"{topic}-{partition} {why}", f"{topic}-{partition} is not archived: {why}")

    def _say_once(self, about: str, sentence: str) -> None:
        if about not in self._said:
            self._said.add(about)
            self._say(sentence)
