"""Decodes record batches into Arrow, several million records a second.

The rules: the rows are those that `wire.records` decodes, and what it rejects is rejected with the same error; aborted
and control records are never rows; memory stays within a batch's limit and one chunk, however far a payload expands.
The loops themselves are in kernels.py.

`decode` keeps timestamps as in the record, in milliseconds, even invalid ones. `spark_rows` gives the columns of
Spark's own Kafka source, `table_rows` those of a topic's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.records import kernels
from headrace.lake.records.table_schema import HEADERS_TYPE, TABLE_SCHEMA
from headrace.wire.batch import HEADER_BYTES, MAX_UNPACKED_BYTES, MIN_RECORD_BYTES, BatchHeader, check_crc
from headrace.wire.batch_errors import BatchTooLarge, InvalidBatch
from headrace.wire.compression import DecompressionFailed, OutputTooLarge, decompress
from headrace.wire.records import decode_batch
from headrace.wire.schema import Buffer

CHUNK_BYTES = 4 * 1024 * 1024
"""Decompressed bytes converted to rows at a time; more would not fit the CPU caches."""

ROWS_MAX = 128 * 1024
"""Rows per Arrow batch: enough to amortise its fixed cost, few enough that a column's offsets fit 32 bits."""

OFFSET_MAX = (1 << 63) - 1

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""The schema of `decode`: names as in Spark's Kafka source, the timestamp as raw milliseconds."""

# The years 1 to 9999, beyond which neither Python nor SQL has dates.
TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS = -62_135_596_800_000, 253_402_300_799_999

_ABORT_MARKER = b"\0\0"

Aborted = tuple[int, int]
"""Producer id and first offset of an aborted transaction, as listed by Fetch."""


def decode(
    batches: Iterable[Buffer],
    *,
    topic: str,
    partition: int,
    first_offset: int = 0,
    stop_offset: int = OFFSET_MAX,
    aborted: Iterable[Aborted] = (),
    headers: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Decodes the records of [first_offset, stop_offset) in whole batches to Arrow batches of `SCHEMA`, none empty.

    `aborted` are those of the same Fetch response. Without `headers` that column is null.
    """
    chunk = _Chunk(topic, partition, first_offset, stop_offset, headers)
    for batch, header in _committed(batches, aborted):
        if header.next_offset <= first_offset or header.base_offset >= stop_offset or header.count == 0:
            continue
        chunk.add(batch, header)
        if chunk.size_bytes >= CHUNK_BYTES:
            yield from chunk.rows()
            chunk = _Chunk(topic, partition, first_offset, stop_offset, headers)
    yield from chunk.rows()


def spark_rows(rows: pa.RecordBatch, *, headers: bool) -> pa.RecordBatch:
    """The same rows with the columns and types of Spark's Kafka source; timestamps out of range are clamped."""
    at = rows.schema.get_field_index("timestamp")
    clamped = pc.min_element_wise(pc.max_element_wise(rows.column(at), TIMESTAMP_MIN_MS), TIMESTAMP_MAX_MS)
    times = pc.multiply(clamped, 1000).cast(pa.timestamp("us", tz="UTC"))
    columns = [*rows.columns[:at], times, *rows.columns[at + 1 :]]
    names = rows.schema.names
    if not headers:
        columns, names = columns[:-1], names[:-1]
    return pa.RecordBatch.from_arrays(columns, names=names)


def table_rows(decoded: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the table for the output of `decode`."""
    times_ms = decoded.column("timestamp")
    clamped = pc.min_element_wise(pc.max_element_wise(times_ms, pa.scalar(0, pa.int64())), pa.scalar(TIMESTAMP_MAX_MS))
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


def _committed(batches: Iterable[Buffer], aborted: Iterable[Aborted]) -> Iterator[tuple[Buffer, BatchHeader]]:
    """The batches with records to read, in order. A transaction is aborted up to its producer's marker."""
    ahead = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        header = check_crc(batch)
        while ahead and ahead[-1][1] <= header.last_offset:
            aborting.add(ahead.pop()[0])
        if header.is_control:
            if any((record.key or b"")[2:4] == _ABORT_MARKER for record in decode_batch(batch)):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield batch, header


class _Chunk:
    """Batches that are converted to rows together."""

    def __init__(self, topic: str, partition: int, first_offset: int, stop_offset: int, headers: bool) -> None:
        self.size_bytes = 0
        self._topic, self._partition = topic.encode(), partition
        self._first, self._stop = first_offset, stop_offset
        self._with_headers = headers
        self._batches: list[Buffer] = []
        self._payloads: list[memoryview] = []
        self._table: list[Sequence[int]] = []

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        """Adds a batch with a correct CRC and records."""
        payload = _payload(batch, header)
        if header.last_offset > OFFSET_MAX or not 0 < header.count * MIN_RECORD_BYTES <= len(payload):
            raise _refusal(batch)
        is_append_time = header.timestamp_type == "LogAppendTime"
        self._batches.append(batch)
        self._payloads.append(payload)
        self._table.append(
            (
                self.size_bytes,
                self.size_bytes + len(payload),
                header.count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                is_append_time,
                header.max_timestamp,
            )
        )
        self.size_bytes += len(payload)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of all added batches."""
        if not self._batches:
            return
        table = np.array(self._table, dtype=np.int64)
        data = self._data(table)
        located = np.empty((int(table[:, kernels.COUNT].sum()), kernels.RECORD_COLUMNS), dtype=np.int64)
        found, failed = kernels.locate(data, table, self._first, self._stop, located)
        if failed >= 0:
            raise _refusal(self._batches[failed])
        for start in range(0, found, ROWS_MAX):
            yield self._arrow(data, located[start : min(start + ROWS_MAX, found)])

    def _data(self, table: kernels.Int64s) -> kernels.Bytes:
        """The bytes that the table's positions refer to: the response itself if all payloads are part of it."""
        whole = self._payloads[0].obj
        if any(payload.obj is not whole for payload in self._payloads):
            return np.frombuffer(b"".join(self._payloads), dtype=np.uint8)
        data: kernels.Bytes = np.frombuffer(cast(Buffer, whole), dtype=np.uint8)
        at = np.array([_address(payload) for payload in self._payloads], dtype=np.int64) - _address(data)
        table[:, kernels.END] += at - table[:, kernels.START]
        table[:, kernels.START] = at
        return data

    def _arrow(self, data: kernels.Bytes, records: kernels.Int64s) -> pa.RecordBatch:
        count = len(records)
        topic_ends = np.arange(0, (count + 1) * len(self._topic), len(self._topic), dtype=np.int32)
        columns = [
            _spans(data, records, kernels.KEY_AT, pa.binary()),
            _spans(data, records, kernels.VALUE_AT, pa.binary()),
            pa.Array.from_buffers(
                pa.string(), count, [None, pa.py_buffer(topic_ends), pa.py_buffer(self._topic * count)], 0
            ),
            pa.array(np.full(count, self._partition, dtype=np.int32)),
            pa.array(np.ascontiguousarray(records[:, kernels.OFFSET])),
            pa.array(np.ascontiguousarray(records[:, kernels.TIMESTAMP])),
            pa.array(records[:, kernels.TIMESTAMP_TYPE].astype(np.int32)),
            _headers(data, records) if self._with_headers else pa.nulls(count, HEADERS_TYPE),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _address(content: Buffer | kernels.Bytes) -> int:
    address: int = np.frombuffer(content, dtype=np.uint8).__array_interface__["data"][0]
    return address


def _payload(batch: Buffer, header: BatchHeader) -> memoryview:
    """The records' bytes; of an uncompressed batch without a copy."""
    view = memoryview(batch)[HEADER_BYTES:]
    if header.compression == "none":
        return view
    try:
        return memoryview(decompress(view, header.compression, MAX_UNPACKED_BYTES))
    except DecompressionFailed as error:
        raise InvalidBatch(str(error)) from None
    except OutputTooLarge as error:
        raise BatchTooLarge(str(error)) from None


def _refusal(batch: Buffer) -> InvalidBatch:
    """Raises the error of the decoder in `wire` for an unreadable batch."""
    decode_batch(batch)
    return InvalidBatch("The batch's records are not well-formed.")


def _spans(data: kernels.Bytes, records: kernels.Int64s, at: int, kind: pa.DataType) -> pa.Array:
    """One field of all records as an Arrow array."""
    lengths = records[:, at + 1]
    offsets = np.empty(len(records) + 1, dtype=np.int32)
    out = np.empty(int(lengths[lengths > 0].sum()), dtype=np.uint8)
    nulls = kernels.copy_spans(data, records, at, offsets, out)
    buffers = [_validity(lengths >= 0) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(records), buffers, nulls)


def _headers(data: kernels.Bytes, records: kernels.Int64s) -> pa.Array:
    """The headers column; null if a record has none, as in Spark's Kafka source."""
    has_headers = records[:, kernels.HEADERS] > 0
    rows = len(records)
    if not has_headers.any():
        return pa.nulls(rows, HEADERS_TYPE)
    count = int(records[:, kernels.HEADERS].sum())
    lists = np.empty(rows + 1, dtype=np.int32)
    spans = np.empty((count, 4), dtype=np.int64)
    kernels.locate_headers(data, records, len(data), lists, spans)
    names = _names(_spans(data, spans, 0, pa.binary()))
    structs = pa.StructArray.from_arrays(
        [names, _spans(data, spans, 2, pa.binary())], fields=list(HEADERS_TYPE.value_type)
    )
    buffers = [_validity(has_headers), pa.py_buffer(lists)]
    return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, rows - int(has_headers.sum()), children=[structs])


def _names(names: pa.Array) -> pa.Array:
    """Header names as text; bytes that are not UTF-8 are replaced, as the Java client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _validity(valid: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
