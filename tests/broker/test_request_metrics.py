"""Requests are counted by API, and the error codes of answers wherever they are in them."""

from __future__ import annotations

import pytest

from headrace.broker.metrics.requests import RequestMetrics, error_names
from headrace.metrics.histogram import Histogram
from headrace.wire.apis import METADATA, PRODUCE
from headrace.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from headrace.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.wire.schema import Payload


def produced(*codes: int) -> ProduceResponse:
    parts = [PartitionProduceResponse(index, code) for index, code in enumerate(codes)]
    return ProduceResponse([TopicProduceResponse(partition_responses=parts)])


def fetched(code: int, *, of_group: int = 0, of_all: int = 0) -> OffsetFetchResponse:
    topic = OffsetFetchResponseTopics(partitions=[OffsetFetchResponsePartitions(error_code=code)])
    group = OffsetFetchResponseGroup(topics=[topic], error_code=of_group)
    return OffsetFetchResponse(groups=[group], error_code=of_all)


@pytest.mark.parametrize(
    ("api_key", "response", "counted"),
    [
        (PRODUCE, produced(0, 0), {}),
        (PRODUCE, produced(6, 0, 6, 3), {"NOT_LEADER_OR_FOLLOWER": 2, "UNKNOWN_TOPIC_OR_PARTITION": 1}),
        (PRODUCE, ProduceResponse([]), {}),
        (PRODUCE, produced(31_000), {"UNKNOWN": 1}),
        (OffsetFetchResponse.api.key, fetched(3), {"UNKNOWN_TOPIC_OR_PARTITION": 1}),
        (
            OffsetFetchResponse.api.key,
            fetched(0, of_group=16, of_all=15),
            {"NOT_COORDINATOR": 1, "COORDINATOR_NOT_AVAILABLE": 1},
        ),
        (METADATA, MetadataResponse(topics=[MetadataResponseTopic(3)]), {"UNKNOWN_TOPIC_OR_PARTITION": 1}),
    ],
)
def test_errors_are_counted_wherever_they_are(api_key: int, response: Payload, counted: dict[str, int]) -> None:
    metrics = RequestMetrics()
    metrics.answered(api_key, response)
    errors = {one.labels[1]: one.value for one in metrics.samples() if one.name == "headrace_request_errors_total"}
    assert errors == counted
    assert sorted(error_names(api_key, response)) == sorted(counted)


def test_partitions_of_a_metadata_are_not_looked_at() -> None:
    """There may be 100,000 of them, and an answer without a leader is no error of the request."""
    topic = MetadataResponseTopic(partitions=[MetadataResponsePartition(5)])
    assert error_names(METADATA, MetadataResponse(topics=[topic])) == []


def test_durations_are_counted_by_api_and_of_unknown_apis_not_at_all() -> None:
    metrics = RequestMetrics()
    for seconds in (0.0004, 0.0005, 0.3):
        metrics.took(PRODUCE, seconds)
    metrics.took(31_000, 1.0)
    (sample,) = [one for one in metrics.samples() if one.name == "headrace_request_seconds"]
    assert isinstance(sample.value, Histogram)
    assert sample.labels == ("Produce",)
    assert dict(sample.value.cumulated())["0.0005"] == 2
    assert sample.value.count == 3
    assert sample.value.total == pytest.approx(0.3009)
