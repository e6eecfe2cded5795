"""The rows of a table: its columns, and how a record's time becomes them.

A nonsense time never stops the archive: `timestamp_ms` is the record's own number, `timestamp` and `day` are the
nearest moment between 1970 and the end of 9999, which every reader of Delta tables can show.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TABLE_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("day", pa.date32(), nullable=False),
    ]
)

_LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""


def table_rows(decoded: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the table for what `decode` gives."""
    times_ms = decoded.column("timestamp")
    clamped = pc.min_element_wise(pc.max_element_wise(times_ms, pa.scalar(0, pa.int64())), pa.scalar(_LAST_MS))
    moments = clamped.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch(
        [
            decoded.column("partition"),
            decoded.column("offset"),
            moments,
            times_ms,
            decoded.column("timestampType"),
            decoded.column("key"),
            decoded.column("value"),
            decoded.column("headers"),
            moments.cast(pa.timestamp("us")).cast(pa.date32()),
        ],
        schema=TABLE_SCHEMA,
    )
