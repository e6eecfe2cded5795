"""Per-record checks of a topic, of keys and timestamps, refused with Kafka's messages (KIP-467).

The refusal lists the records concerned, so that a client fails those and can resend the others.

Retention and lookups by time use the maximum timestamp in a batch's header. librdkafka, told to send records without a
timestamp, writes 0, which is 1970; other clients write 0 or -1 although the records have timestamps. Kafka's broker
computes the maximum from the records of every batch. Here records are read only if the header is implausible or too far
ahead, or if the topic limits the age of records, which no header shows (`TopicPolicy.must_check_times`).
"""

from __future__ import annotations

from headrace.store.store import Store
from headrace.store.topic_configs.policy import TopicPolicy
from headrace.wire import times
from headrace.wire.batch import BatchHeader, read_header, stamp_max_timestamp, unpacked_limit
from headrace.wire.batch_errors import BatchTooLarge, InvalidBatch, InvalidTimestamp, RecordError
from headrace.wire.records import NO_TIMESTAMP
from headrace.wire.schema import Buffer
from headrace.wire.skim import Steps, check_records

RECORD_ERRORS_MOST = 10_000
"""Named in one answer: as many records as librdkafka puts into a batch by default."""
_SHOWN = 3
_BAD_TIMES = "One or more records have been rejected due to invalid timestamp"


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


async def check_record_times(batch: memoryview, header: BatchHeader, policy: TopicPolicy, store: Store) -> BatchHeader:
    """The header with its newest time as the records have it; INVALID_TIMESTAMP if one is too far from the clock's."""
    now_ms, unpacking = store.clock.wall_ms(), store.unpacking
    lowest, highest = now_ms - policy.timestamp_before_max_ms, now_ms + policy.timestamp_after_max_ms
    is_plausible = header.has_plausible_times
    try:
        async with unpacking.records(batch, header, unpacked_limit(len(batch), policy.max_message_bytes)) as data:
            work = times.check_times(data, header, lowest, highest, RECORD_ERRORS_MOST)
            newest, outside = await unpacking.go_over(work)
    except BatchTooLarge:
        # More than is unpacked for the sake of times: what the header says stands, if it can be.
        newest, outside = header.max_timestamp if is_plausible else NO_TIMESTAMP, []
    if outside:
        raise InvalidTimestamp(_BAD_TIMES, [_outside(one, lowest, highest) for one in outside])
    if newest > highest:
        raise InvalidTimestamp(_BAD_TIMES)
    if newest != header.max_timestamp:
        stamp_max_timestamp(batch, newest)
        header = read_header(batch)
    return header


def _outside(one: times.Outside, lowest: int, highest: int) -> RecordError:
    return RecordError(
        one.place,
        f"Timestamp {one.timestamp} of message with offset {one.place} is out of range. "
        f"The timestamp should be within [{lowest}, {highest}]",
    )
