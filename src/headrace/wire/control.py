"""Control batches: clients do not deliver them to the application, but move past them.

The marker that ends a transaction in a partition is one. Its format is Kafka's: one record whose key says commit or
abort, and whose value has the coordinator's epoch.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headrace.wire.batch import CONTROL, HEADER_BYTES, MAGIC, TRANSACTIONAL, BatchHeader, read_header, seal
from headrace.wire.batch_errors import InvalidBatch
from headrace.wire.records import Header, Record, encode_records, iter_records
from headrace.wire.schema import Buffer

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


class EndMarker(NamedTuple):
    """The end of a transaction in one partition."""

    commit: bool
    coordinator_epoch: int
    transaction: bytes = b""
    """Identifies the transaction for this broker: the header `txn` of the marker, empty if another writer made it."""

    @property
    def number(self) -> int:
        """The transaction's number; 0 if it is unknown."""
        return int(self.transaction) if self.transaction.isdigit() else 0


def end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, timestamp: int) -> bytes:
    """The batch that ends a producer's transaction; its offset is set later, like any batch's."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.commit else _ABORT)
    headers: list[Header] = [("txn", marker.transaction)] if marker.transaction else []
    record = Record(0, timestamp, key, _VALUE.pack(0, marker.coordinator_epoch), headers)
    return _control_batch(record, 0, timestamp, producer_id, producer_epoch)


def read_marker(batch: Buffer, pos: int = 0) -> EndMarker | None:
    """The marker in the control batch at `pos`; None for control records of another type."""
    header = read_header(batch, pos)
    payload = memoryview(batch)[pos + HEADER_BYTES : pos + header.length]
    records = [record for portion in iter_records(payload, header) for record in portion]
    if len(records) != 1:
        raise InvalidBatch("A control batch has one record.")
    key, value, headers = records[0].key or b"", records[0].value or b"", records[0].headers
    if len(key) < _KEY.size or (kind := _KEY.unpack_from(key)[1]) not in (_ABORT, _COMMIT):
        return None
    epoch: int = _VALUE.unpack_from(value)[1] if len(value) >= _VALUE.size else -1
    return EndMarker(kind == _COMMIT, epoch, dict(headers).get("txn") or b"")


def skip_marker(offset: int, leader_epoch: int, timestamp: int) -> bytes:
    """A batch that moves readers past an offset: the marker of a transaction that never existed.

    Kafka's clients skip markers at all isolation levels and continue after them.
    """
    marker = Record(offset, timestamp, _KEY.pack(_VERSION, _COMMIT), _VALUE.pack(0, 0), [])
    return _control_batch(marker, offset, timestamp, -1, -1, leader_epoch)


def _control_batch(
    record: Record, offset: int, timestamp: int, producer_id: int, producer_epoch: int, leader_epoch: int = -1
) -> bytes:
    payload = encode_records([record], offset, timestamp)
    header = BatchHeader(
        base_offset=offset,
        length=HEADER_BYTES + len(payload),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        count=1,
    )
    return seal(header, payload)
