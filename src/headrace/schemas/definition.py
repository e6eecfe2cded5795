"""A topic's schema, as stored in a property of the typed table.

There it lives as long as the table, changes in a commit like everything else, and needs no file of its own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.schemas.avro import read_avro
from headrace.schemas.fields import FieldType
from headrace.schemas.infer import check_width, shown_by
from headrace.schemas.json_schema import ReadSchema


class Definition(msgspec.Struct, frozen=True):
    """A format and its schema: a JSON Schema, or Avro schemas by id (`any` for all). `evolves`: it gains new fields."""

    format: Literal["json", "avro"]
    schema: dict[str, Any]
    evolves: bool = False

    def root(self) -> FieldType:
        """The record's type; raises `SchemaRefused`."""
        return ReadSchema(self.schema).root if self.format == "json" else read_avro([*self.schema.values()][-1])

    def show(self, record: bytes) -> dict[str, Any]:
        """The schema that a record with new fields implies; raises if it has too many."""
        shown = shown_by(record)
        check_width(shown, self.schema)
        return shown

    def text(self) -> str:
        """The stored form."""
        return msgspec.json.encode(self).decode()


def read_definition(text: str) -> Definition:
    return msgspec.json.decode(text, type=Definition)
