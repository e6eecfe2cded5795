"""Timestamps of produced records: implausible headers are corrected, and limits are checked.

Retention and lookups by time use the maximum timestamp in a batch's header. librdkafka, told to send records without a
timestamp, writes 0, which is 1970; other clients write 0 or -1 although the records have timestamps. Kafka's broker
computes the maximum from the records of every batch. Here records are read only if the header is implausible or too far
ahead, or if the topic limits the age of records, which no header shows.
"""

from __future__ import annotations

from headrace.broker.produce.record_checks import RECORD_ERRORS_MOST
from headrace.store.store import Store
from headrace.store.topic_configs.keys import INT64_MAX
from headrace.store.topic_configs.policy import TopicPolicy
from headrace.wire import times
from headrace.wire.batch import BatchHeader, read_header, stamp_max_timestamp, unpacked_limit
from headrace.wire.batch_errors import BatchTooLarge, InvalidTimestamp, RecordError
from headrace.wire.records import NO_TIMESTAMP

_REFUSAL = "One or more records have been rejected due to invalid timestamp"


def have_good_times(header: BatchHeader, policy: TopicPolicy, now_ms: int) -> bool:
    """Whether the header alone says that the topic takes the times of its records, as nearly all do."""
    is_bounded = policy.timestamp_before_max_ms != INT64_MAX
    is_in_time = header.max_timestamp <= now_ms + policy.timestamp_after_max_ms
    return is_in_time and not is_bounded and header.has_plausible_times


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
        raise InvalidTimestamp(_REFUSAL, [_refused(one, lowest, highest) for one in outside])
    if newest > highest:
        raise InvalidTimestamp(_REFUSAL)
    if newest != header.max_timestamp:
        stamp_max_timestamp(batch, newest)
        header = read_header(batch)
    return header


def _refused(one: times.Outside, lowest: int, highest: int) -> RecordError:
    return RecordError(
        one.place,
        f"Timestamp {one.timestamp} of message with offset {one.place} is out of range. "
        f"The timestamp should be within [{lowest}, {highest}]",
    )
