"""Giving a topic its schema: from a file, by example, or from what it has; and what is known of schemas in a lake."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow.parquet as pq

from headrace.client import Admin, Cluster, Reader
from headrace.client.admin import EARLIEST
from headrace.lake.catalogue import find_table, tables_in
from headrace.lake.place import Place
from headrace.lake.table import Identity, TableRefused, TopicTable
from headrace.lake.typed_avro import ANY_ID
from headrace.lake.typed_definition import Definition
from headrace.lake.typed_fields import count_columns
from headrace.lake.typed_infer import infer
from headrace.lake.typed_schema import ReadSchema, SchemaRefused
from headrace.lake.typed_table import DerivedTable, find_rejects, find_typed, make_derived, open_rejects

SAMPLE = 10_000
"""Records that a schema is inferred from, of each partition."""


def identity_of(lake: Place, topic: str, cluster: Cluster) -> Identity:
    """Whose table it is: as the raw table says, or, before there is one, as the broker does."""
    try:
        (raw,) = tables_in(lake, [topic])
    except TableRefused:
        found = Admin(cluster).describe_topic(topic)
    else:
        return raw.identity
    assert cluster.cluster_id is not None
    return Identity(cluster.cluster_id, topic, found.topic_id)


def from_json_schema(text: bytes, name: str) -> tuple[Definition, list[str]]:
    """A schema from a file, and what of it is not checked."""
    read = ReadSchema(document := _json(text, name))
    return Definition("json", document), read.not_checked


def from_avro(given: Sequence[tuple[str, bytes]]) -> Definition:
    """Schemas from files, by id; the last one makes the columns."""
    schemas = {key or ANY_ID: _json(text, "the Avro schema") for key, text in given}
    if ANY_ID in schemas and len(schemas) > 1:
        raise SchemaRefused("Several Avro schemas need their ids: --avro 7=orders-v1.avsc --avro 9=orders-v2.avsc.")
    definition = Definition("avro", schemas)
    definition.parser()
    return definition


def from_examples(examples: Iterator[bytes] | Sequence[bytes]) -> tuple[Definition, int]:
    """A schema that evolves, and how many examples were no JSON."""
    schema, bad = infer(examples)
    return Definition("json", schema, evolves=True), bad


def examples_in(content: bytes) -> list[bytes]:
    """The examples of a file: one JSON value, a list of them, or one a line."""
    try:
        whole = json.loads(content)
    except ValueError:
        return [line for line in content.splitlines() if line.strip()]
    return [json.dumps(one).encode() for one in whole] if isinstance(whole, list) else [content]


def sample(lake: Place, identity: Identity, cluster: Cluster) -> Iterator[bytes]:
    """Values to infer from: the newest of the raw table, or, before there is one, the first of the topic."""
    raw = find_table(lake, identity)
    if raw is not None and raw.coverage:
        for covered in raw.coverage.values():
            file = max((f for f in covered.files if f.rows), default=None)
            if file is not None:
                with raw.place.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
                    values = parquet.read_row_group(parquet.num_row_groups - 1, ["value"])["value"]
                    yield from (value for value in values[-SAMPLE:].to_pylist() if value is not None)
        return
    for p in Admin(cluster).describe_topic(identity.topic).partitions:
        records = Reader(cluster).read({(identity.topic, p.index): EARLIEST})
        for _, (_, _, record) in zip(range(SAMPLE), records, strict=False):
            if record.value is not None:
                yield record.value


def set_definition(lake: Place, identity: Identity, definition: Definition, *, rebuild: bool = False) -> DerivedTable:
    """Gives a topic its schema: makes the typed table, adds columns to it, or makes it anew."""
    columns = definition.columns()
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
    """A topic's schema and how far its tables are."""

    topic: str
    format: str
    evolves: bool
    columns: int
    rows: int
    rejected: int
    lag: int
    table: str


def schema_info(lake: Place, raw: TopicTable) -> SchemaInfo | None:
    """What is known of a topic's typed table."""
    typed = find_typed(lake, raw.identity)
    if typed is None or typed.definition is None:
        return None
    lag = sum(
        covered.end - (typed.of(partition).end if typed.of(partition).files else covered.start)
        for partition, covered in raw.coverage.items()
    )
    definition, rejects = typed.definition, find_rejects(lake, typed)
    return SchemaInfo(
        raw.identity.topic, definition.format, definition.evolves, count_columns(definition.root()) - 1, typed.rows,
        rejects.rows if rejects is not None else 0, lag, str(typed.place),
    )  # fmt: skip


def definition_of(lake: Place, identity: Identity) -> Definition:
    """The schema that a topic was given."""
    typed = find_typed(lake, identity)
    if typed is None or typed.definition is None:
        raise TableRefused(f"{identity.topic} has no schema: `headrace lake schema set` gives it one.")
    return typed.definition


def unset_definition(lake: Place, identity: Identity) -> DerivedTable:
    """Takes the schema away: the tables stay as they are."""
    definition_of(lake, identity)
    typed = find_typed(lake, identity)
    assert typed is not None
    typed.set_definition(None)
    return typed


def _json(text: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SchemaRefused(f"{name} is no JSON: {error}.") from None
    if not isinstance(found, Mapping):
        raise SchemaRefused(f"{name} is no JSON object.")
    return dict(found)
