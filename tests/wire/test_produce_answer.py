"""The answer that is packed by hand is the one that the codec makes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.frame import response_frame
from headrace.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.wire.produce_answer import ProducedTopic, produce_answer

INT32, INT64 = st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1)
PARTS = st.lists(st.tuples(INT32, INT64, INT64, INT64), max_size=200)
TOPICS = st.lists(st.tuples(st.text(max_size=200), st.binary(min_size=16, max_size=16), PARTS), max_size=3)


@given(version=st.integers(3, 13), correlation_id=INT32, topics=TOPICS, throttle_ms=INT32)
def test_it_is_what_the_codec_makes(
    version: int, correlation_id: int, topics: list[ProducedTopic], throttle_ms: int
) -> None:
    response = ProduceResponse(throttle_time_ms=throttle_ms)
    for name, topic_id, parts in topics:
        answers = [
            PartitionProduceResponse(
                index=number, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=log_start
            )
            for number, base_offset, append_time_ms, log_start in parts
        ]
        response.responses.append(TopicProduceResponse(topic_id, name, answers))
    expected = b"".join(response_frame(0, response, version, correlation_id))
    assert produce_answer(version, correlation_id, topics, throttle_ms) == expected
