"""The answer that is packed by hand is the one that the codec makes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.fetch_answer import FIRST_VERSION, FetchedTopic, fetch_answer
from headrace.wire.frame import response_frame
from headrace.wire.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData

INT32, INT64 = st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1)
ABORTED = st.none() | st.lists(st.builds(AbortedTransaction, INT64, INT64), max_size=200)
BATCHES = st.lists(st.binary(max_size=300) | st.just(b"x" * 20_000), max_size=3)
PARTS = st.lists(
    st.tuples(INT32, INT64, INT64, INT64, ABORTED, BATCHES).map(lambda part: (*part, sum(map(len, part[5])))),
    max_size=5,
)
TOPICS = st.lists(st.tuples(st.text(max_size=200), st.binary(min_size=16, max_size=16), PARTS), max_size=3)


@given(
    version=st.integers(FIRST_VERSION, FetchResponse.api.versions[1]),
    correlation_id=INT32,
    session_id=INT32,
    topics=TOPICS,
    throttle_ms=INT32,
)
def test_it_is_what_the_codec_makes(
    version: int, correlation_id: int, session_id: int, topics: list[FetchedTopic], throttle_ms: int
) -> None:
    response = FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)
    for name, topic_id, parts in topics:
        answers = [
            PartitionData(
                partition_index=number,
                high_watermark=high_watermark,
                last_stable_offset=stable_end,
                log_start_offset=log_start,
                aborted_transactions=None if aborted is None else list(aborted),
                records=list(batches),
            )
            for number, high_watermark, stable_end, log_start, aborted, batches, _ in parts
        ]
        response.responses.append(FetchableTopicResponse(topic_id, name, answers))
    expected = b"".join(response_frame(1, response, version, correlation_id))
    assert b"".join(fetch_answer(version, correlation_id, session_id, topics, throttle_ms)) == expected


def test_large_batches_are_not_copied() -> None:
    batch = b"x" * 20_000
    pieces = fetch_answer(FIRST_VERSION, 1, 2, [("orders", bytes(16), [(0, 1, 1, 0, None, [batch], len(batch))])])
    assert any(piece is batch for piece in pieces)
