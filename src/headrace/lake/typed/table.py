"""The tables derived from a topic's table: typed rows, and rejects, the records that did not parse.

Each has its own position, the end of its live files, and each commit carries application transactions, as in the raw
table: whatever is killed, a row is in exactly one of the two. Rejects are committed first, so that the range covered by
the typed table is complete. Both can be rebuilt from the raw table at any time; a generation number distinguishes
rejects of an earlier schema.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from headrace.lake.storage.place import Place
from headrace.lake.table.catalogue import OnRefused
from headrace.lake.table.delta_log import (
    CHECKPOINT_EVERY,
    SHORTEN_EVERY,
    Written,
    log_actions,
    settle_files,
    shorten_log,
    take_back,
)
from headrace.lake.table.names import RangeFile, folder_of, folder_of_derived, folder_with_id, is_folder_of
from headrace.lake.table.snapshot import (
    CLUSTER,
    STARTS,
    TOPIC,
    TOPIC_ID,
    Coverage,
    Identity,
    Snapshot,
    StaleArchive,
    coverage_by_partition,
)
from headrace.lake.typed.format import table_columns
from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.definition import Definition, read_definition

SCHEMA, DERIVED, GENERATION = "headrace.schema", "headrace.derived", "headrace.generation"
What = Literal["typed", "rejects"]
TYPED = folder_of_derived("", "typed")
"""Suffix of a typed table's folder."""

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)


class DerivedTable:
    """One of the two tables, as of the last `refresh`."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._delta = place.delta()
        self._adopt(Snapshot.take(place, self._delta))

    def refresh(self) -> None:
        self._adopt(self.snapshot.update(self._delta))

    def _adopt(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.what = snapshot.properties[DERIVED]
        self.generation = int(snapshot.properties[GENERATION])
        text = snapshot.properties.get(SCHEMA)
        self.definition: Definition | None = read_definition(text) if text else None

    @property
    def identity(self) -> Identity:
        return self.snapshot.identity

    @property
    def coverage(self) -> dict[int, Coverage]:
        """The coverage of the live files, by partition."""
        return self.snapshot.coverage

    @property
    def state(self) -> tuple[int, dict[int, int]]:
        """The basis of a plan: the generation, and the position of each partition."""
        return self.generation, {partition: covered.end for partition, covered in self.coverage.items()}

    def of(self, partition: int) -> Coverage:
        return self.snapshot.of(partition)

    @property
    def rows(self) -> int:
        return sum(covered.rows for covered in self.coverage.values())

    @property
    def schema(self) -> pa.Schema:
        """The committed columns."""
        return pa.schema(self._delta.schema().to_arrow())

    def commit(self, written: Sequence[Written]) -> None:
        """Adds these files, or raises and adds nothing."""
        self.snapshot.reopen()  # the folder may belong to another topic by now
        added = coverage_by_partition(one.file for one in written)
        for partition, covered in added.items():
            if self.of(partition).files and covered.start < self.of(partition).end:
                raise StaleArchive(f"Partition {partition} is at {self.of(partition).end}, not {covered.start}.")
        self._transact([], written, [*added.values()])

    def replace(self, files: Sequence[RangeFile], written: Written) -> None:
        """Replaces live files of a partition by one with the same rows."""
        self.snapshot.reopen()
        self._transact(files, [written], [self.of(written.file.partition)])

    def _transact(self, removed: Sequence[RangeFile], written: Sequence[Written], after: Sequence[Coverage]) -> None:
        """Commits against the last refresh; refused if another commit has changed one of the partitions since."""
        actions = log_actions(removed, written, same_rows=bool(removed))
        transactions = [
            Transaction(f"{self.identity.transaction(covered.files[0].partition)}/{self.what}", covered.end)
            for covered in after
        ]
        properties = CommitProperties(app_transactions=transactions)
        try:
            settle_files(self.place, written)
            self._delta.create_write_transaction(actions, "append", self.schema, commit_properties=properties)
        except Exception as error:
            with contextlib.suppress(Exception):
                self.refresh()
                take_back(self.place, written, self.snapshot.named)
            if isinstance(error, CommitFailedError):
                raise StaleArchive(str(error)) from error
            raise
        self.refresh()
        if self.snapshot.version % SHORTEN_EVERY == 0:
            shorten_log(self.place, self.snapshot.version)

    def evolve(self, definition: Definition) -> None:
        """Changes the schema: first adds its columns, then sets it, so that no row has a missing column."""
        self.snapshot.reopen()
        wanted, has = table_columns(definition), self.schema
        for field in wanted:
            at = has.get_field_index(field.name)
            if at >= 0 and not _fits(field.type, has.field(at).type):
                raise SchemaRefused(
                    f"The column {field.name} is {has.field(at).type} in {self.place} and would become {field.type}: "
                    "use --rebuild to rebuild the table from the raw one."
                )
        if any(has.get_field_index(f.name) < 0 or has.field(f.name).type != f.type for f in wanted):
            options = self.place.storage_options
            write_deltalake(
                self.place.uri, wanted.empty_table(), mode="append", schema_mode="merge", storage_options=options
            )
        self.set_definition(definition)

    def set_definition(self, definition: Definition | None) -> None:
        """Stores the schema; None: the table gets no more rows."""
        self._delta = self.place.delta()
        text = "" if definition is None else definition.text()
        self._delta.alter.set_table_properties({SCHEMA: text}, raise_if_not_exists=False)
        self._delta = self.place.delta()
        self._adopt(Snapshot.take(self.place, self._delta, self.snapshot))


def find_typed(lake: Place, identity: Identity) -> DerivedTable | None:
    """The topic's typed table. A recreated topic inherits the schema of the old one."""
    found, former = _find(lake, identity, "typed")
    if found is None and former is not None and former.definition is not None:
        return make_derived(lake, identity, "typed", table_columns(former.definition), former.definition)
    return found


def typed_without_raw(lake: Place, topics: Sequence[str], refused: OnRefused) -> Iterator[DerivedTable]:
    """The typed tables of topics, or of the named ones, that were not archived yet."""
    folders = lake.folders()
    for raw in sorted(folder.removesuffix(TYPED) for folder in folders if folder.endswith(TYPED)):
        place = lake / f"{raw}{TYPED}"
        is_wanted = not topics or any(is_folder_of(raw, topic) for topic in topics)
        if is_wanted and raw not in folders and place.has_table():
            try:
                yield DerivedTable(place)
            except (ValueError, DeltaError, OSError) as error:
                refused(f"{raw}{TYPED}", error)


def find_rejects(lake: Place, typed: DerivedTable) -> DerivedTable | None:
    """The rejects of a typed table, if there are any of its generation."""
    found, _ = _find(lake, typed.identity, "rejects")
    return found if found is not None and found.generation == typed.generation else None


def find_derived(lake: Place, identity: Identity) -> list[DerivedTable]:
    """The existing tables derived from a topic's table."""
    found = (_find(lake, identity, "typed")[0], _find(lake, identity, "rejects")[0])
    return [table for table in found if table is not None]


def open_rejects(lake: Place, typed: DerivedTable) -> DerivedTable:
    """The rejects of a typed table; those from before the last rebuild are dropped."""
    found, _ = _find(lake, typed.identity, "rejects")
    if found is None or found.generation != typed.generation:
        place = found.place if found is not None else None
        return make_derived(
            lake, typed.identity, "rejects", REJECTS_SCHEMA, None, place=place, generation=typed.generation
        )
    return found


def make_derived(
    lake: Place,
    identity: Identity,
    what: What,
    columns: pa.Schema,
    definition: Definition | None,
    *,
    place: Place | None = None,
    generation: int = 0,
) -> DerivedTable:
    """Creates a table, or recreates the one in `place`: its rows are removed in the same commit."""
    overwrites = place is not None
    if place is None:
        place = _free_place(lake, identity, what)
    if place.is_local:
        os.makedirs(place.uri, exist_ok=True)
    configuration = {
        CLUSTER: identity.cluster_id, TOPIC: identity.topic, TOPIC_ID: identity.topic_id.hex(), STARTS: "{}",
        DERIVED: what, GENERATION: str(generation), SCHEMA: definition.text() if definition else "",
        "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    }  # fmt: skip
    # Another archive may create it at the same time: its table is as good as ours.
    with contextlib.nullcontext() if overwrites else contextlib.suppress(DeltaError):
        DeltaTable.create(
            place.uri, columns, mode="overwrite" if overwrites else "ignore", name=f"{identity.topic} {what}",
            configuration=configuration, storage_options=place.storage_options, raise_if_key_not_exists=False,
        )  # fmt: skip
    return DerivedTable(place)


def _places(lake: Place, identity: Identity, what: What) -> tuple[Place, Place]:
    plain, with_id = folder_of(identity.topic), folder_with_id(identity.topic, identity.topic_id)
    return lake / folder_of_derived(plain, what), lake / folder_of_derived(with_id, what)


def _find(lake: Place, identity: Identity, what: What) -> tuple[DerivedTable | None, DerivedTable | None]:
    """The topic's table, and that of a deleted topic of the same name."""
    former = None
    for place in _places(lake, identity, what):
        if place.has_table():
            table = DerivedTable(place)
            if table.identity == identity:
                return table, None
            former = table
    return None, former


def _free_place(lake: Place, identity: Identity, what: What) -> Place:
    """The location of a new table: a deleted topic's is moved away, unless the store cannot rename."""
    plain, with_id = _places(lake, identity, what)
    if not plain.has_table():
        return plain
    if not lake.is_local:
        return with_id
    former = DerivedTable(plain).identity
    with contextlib.suppress(FileNotFoundError):
        os.rename(plain.uri, _places(lake, former, what)[1].uri)
    return plain


def _fits(wanted: pa.DataType, has: pa.DataType) -> bool:
    """Whether a column accepts values of a type, possibly after adding nested fields."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(has):
        known = {field.name: field.type for field in has}
        return all(field.name not in known or _fits(field.type, known[field.name]) for field in wanted)
    if pa.types.is_list(wanted) and pa.types.is_list(has):
        return _fits(wanted.value_type, has.value_type)
    if pa.types.is_map(wanted) and pa.types.is_map(has):
        return _fits(wanted.item_type, has.item_type)
    return bool(wanted.equals(has))
