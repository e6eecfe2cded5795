"""Schemas: JSON Schema and Avro, parsed to typed fields, inferred from records, stored and printed.

The rule of this room: no tables, no Arrow, no I/O. The lake decides what a schema means for a table.
"""
