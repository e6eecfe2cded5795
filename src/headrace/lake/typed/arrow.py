"""The Arrow types of a schema's fields."""

from __future__ import annotations

import pyarrow as pa

from headrace.schemas.fields import FieldType, columns_of, visible

_SIMPLE = {
    "string": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}


def arrow_type(kind: FieldType) -> pa.DataType:
    """The type of a field's column."""
    if kind.kind == "object":
        return pa.struct([pa.field(field.column, arrow_type(field.type)) for field in visible(kind)])
    if kind.kind == "list":
        assert kind.items is not None
        return pa.list_(arrow_type(kind.items))
    if kind.kind == "map":
        assert kind.items is not None
        return pa.map_(pa.string(), arrow_type(kind.items))
    if kind.kind == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return _SIMPLE[kind.kind]


def table_schema(root: FieldType) -> pa.Schema:
    """The columns of a typed table."""
    return pa.schema(
        [
            pa.field("_partition", pa.int32(), nullable=False),
            pa.field("_offset", pa.int64(), nullable=False),
            pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("_key", pa.binary()),
            *(pa.field(field.column, arrow_type(field.type)) for field in columns_of(root)),
        ]
    )
