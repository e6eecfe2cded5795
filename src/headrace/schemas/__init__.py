"""What a schema is: JSON Schema and Avro, read as fields with types, inferred from records, printed and set again.

The rule of this room: no tables, no Arrow, no I/O. What a schema means for a table is the lake's.
"""
