"""Sets a topic's schema, from a file, examples or its records, and lists the schemas of a lake."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.client import Admin, Cluster
from headrace.lake.storage.place import Place
from headrace.lake.table.catalogue import OnRefused, tables_in
from headrace.lake.table.snapshot import Identity, TableRefused
from headrace.lake.table.table import TopicTable
from headrace.lake.typed.format import table_columns
from headrace.lake.typed.table import (
    DerivedTable,
    find_rejects,
    find_typed,
    make_derived,
    open_rejects,
    typed_without_raw,
)
from headrace.schemas.definition import Definition
from headrace.schemas.fields import count_columns


def identity_of(lake: Place, topic: str, cluster: Cluster) -> Identity:
    """The table's identity: from the raw table or, before there is one, from the broker."""
    try:
        (raw,) = tables_in(lake, [topic])
    except TableRefused:
        found = Admin(cluster).describe_topic(topic)
    else:
        return raw.identity
    assert cluster.cluster_id is not None
    return Identity(cluster.cluster_id, topic, found.topic_id)


def set_definition(lake: Place, identity: Identity, definition: Definition, *, rebuild: bool = False) -> DerivedTable:
    """Sets a topic's schema: creates the typed table, adds columns to it, or rebuilds it."""
    columns = table_columns(definition)
    typed = find_typed(lake, identity)
    if typed is None:
        return make_derived(lake, identity, "typed", columns, definition)
    if rebuild:
        after = typed.generation + 1
        typed = make_derived(lake, identity, "typed", columns, definition, place=typed.place, generation=after)
        open_rejects(lake, typed)
        return typed
    typed.evolve(definition)
    return typed


class SchemaInfo(msgspec.Struct, frozen=True):
    """A topic's schema and the progress of its tables."""

    topic: str
    format: str
    evolves: bool
    columns: int
    rows: int
    rejected: int
    lag: int
    table: str


def schema_info(lake: Place, raw: TopicTable) -> SchemaInfo | None:
    """The state of a topic's typed table."""
    typed = find_typed(lake, raw.identity)
    if typed is None or typed.definition is None:
        return None
    lag = sum(
        covered.end - (typed.of(partition).end if typed.of(partition).files else covered.start)
        for partition, covered in raw.coverage.items()
    )
    rejects = find_rejects(lake, typed)
    return _info(typed, typed.definition, rejects.rows if rejects is not None else 0, lag)


def schemas_waiting(lake: Place, topics: Sequence[str], refused: OnRefused) -> list[SchemaInfo]:
    """Schemas set before the first archive of their topic."""
    return [
        _info(typed, typed.definition, 0, 0)
        for typed in typed_without_raw(lake, topics, refused)
        if typed.definition is not None
    ]


def _info(typed: DerivedTable, definition: Definition, rejected: int, lag: int) -> SchemaInfo:
    root = definition.root()
    columns = count_columns(root) - (root.kind == "object")  # any other has one column, `value`
    return SchemaInfo(
        typed.identity.topic, definition.format, definition.evolves, columns, typed.rows, rejected, lag,
        str(typed.place),
    )  # fmt: skip


def found_definition(lake: Place, identity: Identity) -> Definition | None:
    """The topic's schema, if it has one."""
    typed = find_typed(lake, identity)
    return None if typed is None else typed.definition


def definition_of(lake: Place, identity: Identity) -> Definition:
    """The topic's schema."""
    if (found := found_definition(lake, identity)) is None:
        raise TableRefused(f"{identity.topic} has no schema: set one with `headrace lake schema set`.")
    return found


def unset_definition(lake: Place, identity: Identity) -> DerivedTable:
    """Removes the schema; the tables stay as they are."""
    definition_of(lake, identity)
    typed = find_typed(lake, identity)
    assert typed is not None
    typed.set_definition(None)
    return typed
