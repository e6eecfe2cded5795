"""Keeps typed tables up to date with the raw ones: new raw rows are parsed, range by range.

Typed tables are derived from the raw table's files, never from the topic, so they can be rebuilt at any time and never
have more than the raw table. A round plans from the tables alone, lets tasks write, and commits rejects first, then
typed rows; killed anywhere, the next round continues from what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from headrace.lake.storage.place import Place, reason
from headrace.lake.table.snapshot import Identity, StaleArchive
from headrace.lake.table.table import TopicTable
from headrace.lake.typed.compaction import OnTasks, here, merge_small_files
from headrace.lake.typed.table import DerivedTable, find_typed, open_rejects
from headrace.lake.typed.task import DeriveOutcome, DeriveTask, derive_encoded
from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.definition import Definition
from headrace.schemas.infer import both, grown, said_of

RANGE_BYTES = 64 * 1024 * 1024
"""Bytes of raw files per task, more if a single file is larger."""

MOST_LEFT_OUT = 10_000
"""Fields without a column remembered per topic, so that each is reported once."""

FRUITLESS_ROUNDS = 5
"""Consecutive failures before giving up."""


class DeriveRound(msgspec.Struct):
    """The result of a round; `lag` is the number of raw offsets left, without stopped partitions."""

    rows: int = 0
    rejected: int = 0
    lag: int = 0
    commits: int = 0


class Derivation:
    """Updates typed tables. `on_tasks` runs the tasks: here, or on a cluster."""

    def __init__(
        self,
        lake: Place,
        *,
        on_tasks: OnTasks = here,
        say: Callable[[str], None] = lambda sentence: None,
        at_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._lake, self._on_tasks, self._say, self._at_step = lake, on_tasks, say, at_step
        self._known: dict[tuple[Identity, str], DerivedTable] = {}
        self.troubles: dict[tuple[str, int], str] = {}
        """Why a partition is stopped; checked again in each round."""
        self.setbacks: dict[str, str] = {}
        """By topic, why rows could not be written in the last round; a retry may succeed."""
        self._left_out: dict[str, set[str]] = {}
        """Fields left out of a topic's typed table that were reported."""

    def catch_up(self, raw: TopicTable) -> DeriveRound:
        """Parses everything in a raw table; `OSError` if rows cannot be written."""
        total = DeriveRound()
        fruitless = 0
        while True:
            done = self.round([raw])
            total.rows += done.rows
            total.rejected += done.rejected
            total.commits += done.commits
            total.lag = done.lag
            if raw.identity.topic in self.setbacks:
                raise OSError(self.setbacks[raw.identity.topic])
            fruitless = 0 if done.commits else fruitless + 1
            if not done.lag or fruitless == FRUITLESS_ROUNDS:
                return total
            raw.refresh()

    def round(self, tables: Sequence[TopicTable]) -> DeriveRound:
        """Parses one range of each partition with unparsed rows."""
        done = DeriveRound()
        for raw in tables:
            self._forget(raw.identity.topic)
            typed = self._typed(raw.identity)
            if typed is None or typed.definition is None:
                continue
            try:
                self._bring(raw, typed, self._rejects(typed), done)
                if done.commits:
                    self._tidy(typed, self._rejects(typed))
            except StaleArchive:
                # Another archive was first, or the topic was recreated: the next round plans from the new state.
                self._known.clear()
                typed = self._typed(raw.identity)
            if typed is not None:
                done.lag += self._lag(raw, typed)
        return done

    def _lag(self, raw: TopicTable, typed: DerivedTable) -> int:
        """Offsets still to be parsed, without stopped partitions."""
        return sum(
            max(0, covered.end - max(_position(typed, partition, covered.start), covered.start))
            for partition, covered in raw.coverage.items()
            if (raw.identity.topic, partition) not in self.troubles
        )

    def _typed(self, identity: Identity) -> DerivedTable | None:
        known = self._known.get((identity, "typed"))
        if known is not None:
            known.refresh()
        elif (known := find_typed(self._lake, identity)) is not None:
            self._known[identity, "typed"] = known
        return known

    def _rejects(self, typed: DerivedTable) -> DerivedTable:
        known = self._known.get((typed.identity, "rejects"))
        if known is not None:
            known.refresh()
        if known is None or known.generation != typed.generation:
            known = self._known[typed.identity, "rejects"] = open_rejects(self._lake, typed)
        return known

    def _bring(self, raw: TopicTable, typed: DerivedTable, rejects: DerivedTable, done: DeriveRound) -> None:
        ranges = list(self._ranges(raw, typed, rejects))
        if not ranges:
            return
        planned = typed.state
        self._at_step("before-parse")
        outcomes = self._derive(ranges)
        while growing := [outcome for outcome in outcomes if outcome.shown is not None]:
            definition = self._evolve(typed, [outcome.shown for outcome in growing if outcome.shown is not None])
            is_final = definition is None
            self._at_step("after-evolve")
            if typed.state != planned:
                return  # evolving refreshed the table, and another archive has changed it
            again = [
                msgspec.structs.replace(outcome.range, definition=definition or typed.definition, is_final=is_final)
                for outcome in growing
            ]
            outcomes = [outcome for outcome in outcomes if outcome.shown is None] + self._derive(again)
        self._note_troubles(raw, outcomes)
        self._commit(typed, rejects, outcomes, done)

    def _derive(self, ranges: Sequence[DeriveTask]) -> list[DeriveOutcome]:
        answers = self._on_tasks([msgspec.msgpack.encode(wanted) for wanted in ranges], derive_encoded)
        return [msgspec.msgpack.decode(answer, type=DeriveOutcome) for answer in answers]

    def _evolve(self, typed: DerivedTable, shown: Sequence[dict[str, Any]]) -> Definition | None:
        """The schema extended by new fields; None if it cannot grow any more."""
        before = typed.definition
        assert before is not None
        found = grown(before.schema, reduce(both, shown))
        self._say_left_out(typed.identity.topic, found.left_out)
        if found.schema == before.schema:
            return None
        after = msgspec.structs.replace(before, schema=found.schema)
        try:
            typed.evolve(after)
        except SchemaRefused as error:
            self._say(f"{typed.identity.topic}: new fields are left out of the typed table: {error}")
            return None
        self._say(f"{typed.identity.topic}: the typed table has new columns")
        return after

    # Planning

    def _ranges(self, raw: TopicTable, typed: DerivedTable, rejects: DerivedTable) -> Iterator[DeriveTask]:
        topic, definition = raw.identity.topic, typed.definition
        assert definition is not None
        for partition, covered in sorted(raw.coverage.items()):
            start = _position(typed, partition, covered.start)
            files = [file for file in covered.files if file.end > start]
            broken = [at for at, _ in (*covered.missing(), *covered.doubled()) if at >= start]
            if broken:
                self._stop(topic, partition, f"the raw table has missing or duplicate rows from offset {broken[0]} on")
                files = [file for file in files if file.end <= broken[0]]
            if not files:
                continue
            chosen, size_bytes = [files[0]], files[0].size_bytes
            for file in files[1:]:
                size_bytes += file.size_bytes
                if size_bytes > RANGE_BYTES:
                    break
                chosen.append(file)
            start = max(start, chosen[0].start)
            ended = rejects.of(partition).end if rejects.of(partition).files else 0
            yield DeriveTask(
                topic, partition, start, chosen[-1].end, raw.place, chosen, typed.place, rejects.place, definition,
                ended, _rejected(rejects, partition, start) if ended > start else [],
            )  # fmt: skip

    # Committing

    def _commit(
        self, typed: DerivedTable, rejects: DerivedTable, outcomes: Sequence[DeriveOutcome], done: DeriveRound
    ) -> None:
        rejected = [outcome.rejects for outcome in outcomes if outcome.rejects is not None]
        written = [outcome.typed for outcome in outcomes if outcome.typed is not None]
        if not written:
            return
        self._at_step("before-rejects")
        if rejected:
            rejects.commit(rejected)
        self._at_step("after-rejects")
        typed.commit(written)
        self._at_step("after-typed")
        done.rows += sum(one.file.rows for one in written)
        done.rejected += sum(one.file.rows for one in rejected)
        done.commits += 1

    def _tidy(self, *tables: DerivedTable) -> None:
        """Merges small files; a failure is reported and changes nothing."""
        for table in tables:
            try:
                merge_small_files(table, self._on_tasks)
            except (OSError, ValueError, DeltaError) as error:
                self._say(f"files of {table.place} are not merged: {reason(error)}")

    def _note_troubles(self, raw: TopicTable, outcomes: Sequence[DeriveOutcome]) -> None:
        """Retries temporary problems; others stop their partition."""
        if any(outcome.missing for outcome in outcomes):
            raw.refresh()  # merged since it was listed: the next round finds the merged file
        for outcome in outcomes:
            topic, partition = outcome.range.topic, outcome.range.partition
            if outcome.missing is not None and outcome.missing in raw.snapshot.named:
                self._stop(topic, partition, f"{raw.place / outcome.missing} is missing")
            elif outcome.trouble is not None and outcome.passes:
                self.setbacks[topic] = outcome.trouble
            elif outcome.trouble is not None:
                self._stop(topic, partition, outcome.trouble)

    # Saying

    def _forget(self, topic: str) -> None:
        self.troubles = {at: why for at, why in self.troubles.items() if at[0] != topic}
        self.setbacks.pop(topic, None)

    def _say_left_out(self, topic: str, left_out: Mapping[str, str]) -> None:
        """Reports each field once, up to a limit."""
        told = self._left_out.setdefault(topic, set())
        new = {at: why for at, why in left_out.items() if at not in told}
        if len(told) < MOST_LEFT_OUT:
            told.update(new)
            for sentence in said_of(new):
                self._say(f"{topic}: {sentence}")

    def _stop(self, topic: str, partition: int, why: str) -> None:
        self.troubles[topic, partition] = why
        self._say(f"{topic}-{partition} is not parsed: {why}")


def _position(typed: DerivedTable, partition: int, raw_start: int) -> int:
    """The next offset to parse."""
    covered = typed.of(partition)
    return covered.end if covered.files else raw_start


def _rejected(rejects: DerivedTable, partition: int, start: int) -> list[int]:
    """The offsets from `start` on that are already in the rejects."""
    found: list[int] = []
    for file in rejects.of(partition).files:
        if file.end > start:
            with rejects.place.open(file.path) as opened:
                offsets = pq.read_table(opened, columns=["offset"])["offset"]
            found += offsets.filter(pc.greater_equal(offsets, start)).to_pylist()
    return found
