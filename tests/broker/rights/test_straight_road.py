"""Which requests are answered without a task, and that nobody can tell by the answer."""

from __future__ import annotations

import pytest

from headrace.broker.broker import Broker
from headrace.security.acls import Operation
from headrace.security.caller import system_caller
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.broker.peers import batch_of, produce_request
from tests.broker.rights.caller import Client, grant
from tests.broker.rights.conftest import StartStrict

VERSIONS = range(3, 13)


def request(*topics: str, acks: int = -1, batch: bytes = b"") -> ProduceRequest:
    """A batch for each topic."""
    made = produce_request(topics[0], {0: batch or batch_of(b"value")})
    for topic in topics[1:]:
        made.topic_data += produce_request(topic, {0: batch_of(b"value")}).topic_data
    made.acks = acks
    return made


async def offsets(client: Client, asked: ProduceRequest, version: int) -> list[int]:
    answer: ProduceResponse = await client.ask(asked, version)
    parts = [part for topic in answer.responses for part in topic.partition_responses]
    assert [part.error_code for part in parts] == [0] * len(parts)
    return [part.base_offset for part in parts]


@pytest.fixture
async def root(strict: Broker) -> Client:
    client = Client(strict, "root")
    for name in ("orders", "returns"):
        await client.access.create_topic(name, 1, {})
        await client.ask(request(name), 9)  # from now on this node knows the partition
    return client


async def test_every_version_and_several_topics_go_straight(root: Client) -> None:
    for count, version in enumerate(VERSIONS, start=1):
        assert await offsets(root, request("orders", "returns", acks=1), version) == [count, count]
        assert root.went_straight


async def test_the_buffer_of_a_large_request_is_used_again(root: Client) -> None:
    await offsets(root, request("orders", batch=batch_of(b"large" * 20_000)), 9)
    assert root.went_straight
    buffer = root.frame_buffers.take(100_000)
    assert buffer is not None
    assert b"large" in bytes(buffer)


async def test_what_has_to_be_unpacked_or_looked_up_takes_the_other_road(root: Client) -> None:
    await root.access.create_topic("packed", 1, {"compression.type": "gzip"})
    await root.access.create_topic("stream", 1, {"headrace.format": "stream"})
    for name in ("packed", "stream"):
        for _ in range(2):
            await offsets(root, request("orders", name), 9)
            assert not root.went_straight
    assert await root.codes(request("orders", "unknown"), 9) == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not root.went_straight


async def test_one_bad_batch_gets_its_error_and_the_other_is_appended_once(root: Client) -> None:
    bad = produce_request("returns", {0: batch_of(b"value")[:-1]})
    asked = request("orders")
    asked.topic_data += bad.topic_data
    assert await root.codes(asked, 9) == {0, ErrorCode.INVALID_RECORD}
    assert await offsets(root, request("orders"), 9) == [2]


async def test_rights_that_were_taken_away_hold_at_once(strict: Broker, root: Client) -> None:
    ann = Client(strict, "ann")
    allowed = await grant(strict, "User:ann", operation=Operation.WRITE, name="orders")
    assert await offsets(ann, request("orders"), 9) == [1]
    assert ann.went_straight
    assert await ann.codes(request("orders", "returns"), 9) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    await strict.authorizer.remove(system_caller("default"), allowed)
    assert await ann.codes(request("orders"), 9) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_it_can_be_switched_off(start_strict: StartStrict) -> None:
    broker = await start_strict(straight_path=False)
    root = Client(broker, "root")
    await root.access.create_topic("orders", 1, {})
    for count in range(2):
        assert await offsets(root, request("orders"), 9) == [count]
        assert not root.went_straight
