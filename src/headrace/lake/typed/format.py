"""The parser and the columns of a typed table, by its topic's schema."""

from __future__ import annotations

import pyarrow as pa

from headrace.lake.typed.arrow import table_schema
from headrace.lake.typed.avro import AvroParser
from headrace.lake.typed.json import JsonParser
from headrace.lake.typed.parser import Parser
from headrace.schemas.definition import Definition
from headrace.schemas.json_schema import ReadSchema


def parser_of(definition: Definition) -> Parser:
    """The parser of the schema's format."""
    if definition.format == "avro":
        return AvroParser(definition.schema)
    read = ReadSchema(definition.schema)
    return JsonParser(read.root, is_nullable=read.is_nullable, show=definition.show if definition.evolves else None)


def table_columns(definition: Definition) -> pa.Schema:
    """The columns of the typed table."""
    return table_schema(definition.root())
