"""What a topic's records are: the schema as it is kept, in a property of the typed table.

There it lives as long as the table, changes in a commit like everything else, and needs no file of its own in the lake.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pyarrow as pa

from headrace.lake.typed_avro import AvroParser, read_avro
from headrace.lake.typed_fields import FieldType, table_schema
from headrace.lake.typed_json import JsonParser
from headrace.lake.typed_parser import Parser
from headrace.lake.typed_schema import ReadSchema


class Definition(msgspec.Struct, frozen=True):
    """A format and its schema: a JSON Schema, or Avro schemas by id (`any` for all). `evolves`: new fields join."""

    format: Literal["json", "avro"]
    schema: dict[str, Any]
    evolves: bool = False

    def root(self) -> FieldType:
        """The record's type; raises `SchemaRefused`."""
        return ReadSchema(self.schema).root if self.format == "json" else read_avro([*self.schema.values()][-1])

    def parser(self) -> Parser:
        return JsonParser(self.root(), evolves=self.evolves) if self.format == "json" else AvroParser(self.schema)

    def columns(self) -> pa.Schema:
        """The columns of the typed table."""
        return table_schema(self.root())

    def text(self) -> str:
        """As it is kept."""
        return msgspec.json.encode(self).decode()


def read_definition(text: str) -> Definition:
    return msgspec.json.decode(text, type=Definition)
