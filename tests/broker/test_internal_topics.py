"""Names that clients take for the broker's own topics: shown as internal, never made or written by a client.

The broker makes `__consumer_offsets` itself when somebody asks for it: tests/broker/test_offsets_topic.py.
"""

from __future__ import annotations

import json

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.administrator import Administrator, new_topic
from tests.broker.peers import batch_of, connect, create_topic, metadata, produce
from tests.conftest import StartBroker, StartRedis
from tests.redis_view import RedisView

INTERNAL = ["__consumer_offsets", "__transaction_state", "__share_group_state"]
CATALOGUE = "headrace:default:{topics}"


def names_of(connection: BrokerConnection) -> set[str | None]:
    """Every topic there is."""
    return {topic.name for topic in connection.send_for(MetadataRequest(None), MetadataResponse, 12).topics}


@pytest.mark.parametrize("name", INTERNAL[1:])
def test_asking_for_it_does_not_make_it_and_shows_that_it_is_internal(administrator: Administrator, name: str) -> None:
    connection = administrator.connection
    (found,) = metadata(connection, name).topics
    assert (found.error_code, found.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    request = DescribeTopicPartitionsRequest([TopicRequest(name)])
    (described,) = connection.send_for(request, DescribeTopicPartitionsResponse, 0).topics
    assert (described.error_code, described.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    assert name not in names_of(connection)


@pytest.mark.parametrize("name", INTERNAL[1:])
def test_a_client_can_neither_make_nor_delete_nor_write_it(administrator: Administrator, name: str) -> None:
    connection = administrator.connection
    for validate_only in (True, False):
        refused = administrator.create(new_topic(name), validate_only=validate_only)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == f"Creation of internal topic {name} is prohibited."
    request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=5_000)
    (deleted,) = connection.send_for(request, DeleteTopicsResponse, 6).responses
    assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(connection, name, {0: batch_of(b"x")})[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert name not in names_of(connection)


def test_one_that_is_there_from_before_is_shown_as_internal_and_not_written(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> None:
    """Earlier versions made a topic of any name that a client asked for."""
    redis = start_redis()
    with connect(start_broker(redis=redis.url)) as connection, RedisView(redis.url) as store:
        create_topic(connection, topic)
        record = json.loads(store.call("HGET", CATALOGUE, topic))
        store.call("HSET", CATALOGUE, INTERNAL[0], json.dumps(record | {"name": INTERNAL[0]}))
        store.call("HINCRBY", CATALOGUE, ":version", 1)
        (found,) = metadata(connection, INTERNAL[0]).topics
        assert (found.error_code, found.is_internal) == (0, True)
        answer = produce(connection, INTERNAL[0], {0: batch_of(b"x")})[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        code, _ = Administrator(connection).delete_records(INTERNAL[0], 0, 0)
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
