"""Per-record checks of a topic, refused with Kafka's messages (KIP-467).

The refusal lists the records concerned, so that a client fails those and can resend the others.
"""

from __future__ import annotations

from headrace.wire.batch import BatchHeader
from headrace.wire.batch_errors import InvalidBatch, RecordError
from headrace.wire.schema import Buffer
from headrace.wire.skim import Steps, check_records

RECORD_ERRORS_MOST = 10_000
"""Named in one answer: as many records as librdkafka puts into a batch by default."""
_SHOWN = 3


def check_keys(data: Buffer, header: BatchHeader, partition: str) -> Steps[None]:
    """Refuses an unpacked batch with a record without a key, or with malformed ones."""
    count, first = yield from check_records(data, header, RECORD_ERRORS_MOST)
    if count:
        why = f"Compacted topic cannot accept message without key in topic partition {partition}"
        raise InvalidBatch(_summary(count, first, why), [RecordError(place, why) for place in first])


def _summary(count: int, first: list[int], why: str) -> str:
    shown = ", ".join(f"RecordError(batchIndex={place}, message='{why}')" for place in first[:_SHOWN])
    return (
        f"One or more records have been rejected due to {count} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
