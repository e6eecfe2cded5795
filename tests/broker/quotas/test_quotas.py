"""Quotas that throttle: who has to pause, what its answer says, and what happens to its connection."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from headrace.broker.broker import Broker
from headrace.security.quotas import CONNECTIONS, CONSUMER, MUTATIONS, PRODUCER, REQUESTS
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.peers import batch_of, connect, fetch_request, produce_request
from tests.broker.rights.caller import Client
from tests.broker.rights.conftest import StartStrict, start_strict, strict
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

__all__ = ["start_strict", "strict"]


class SteppedClock:
    """The quotas' clock, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture
async def clock(strict: Broker) -> SteppedClock:
    clock = SteppedClock()
    strict.quotas.now_ms = clock
    await Client(strict, "root").access.create_topic("orders", 1, {})
    return clock


def alter(
    key: str, value: float, *, remove: bool = False, validate: bool = False, **entity: str | None
) -> AlterClientQuotasRequest:
    parts = [EntityData(kind.replace("_", "-"), name) for kind, name in entity.items()]
    return AlterClientQuotasRequest([EntryData(parts, [OpData(key, value, remove)])], validate)


async def test_quotas_are_set_found_and_removed(strict: Broker) -> None:
    root = Client(strict, "root")
    for version in (0, 1):
        assert await root.codes(alter(PRODUCER, 1024, user="alice", client_id=None), version) == {0}
        assert await root.codes(alter(CONSUMER, 2048, user="alice"), version) == {0}
        exact = DescribeClientQuotasRequest([ComponentData("user", 0, "alice")], False)
        found = (await root.ask(exact, version)).entries
        shown = [
            ({e.entity_type: e.entity_name for e in one.entity}, {v.key: v.value for v in one.values}) for one in found
        ]
        assert shown == [
            ({"client-id": None, "user": "alice"}, {PRODUCER: 1024.0}),
            ({"user": "alice"}, {CONSUMER: 2048.0}),
        ]
        strictly = DescribeClientQuotasRequest([ComponentData("user", 0, "alice")], True)
        assert len((await root.ask(strictly, version)).entries) == 1
        await root.ask(alter(PRODUCER, 0, remove=True, user="alice", client_id=None), version)
        await root.ask(alter(CONSUMER, 0, remove=True, user="alice"), version)
        assert (await root.ask(DescribeClientQuotasRequest([], False), version)).entries == []
    await root.ask(alter(PRODUCER, 1, user="alice", validate=True))
    assert not strict.quotas.is_any


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (alter(PRODUCER, 0, user="a"), "must be greater than 0"),
        (alter(PRODUCER, 1.5, user="a"), "cannot be a fractional value"),
        (alter("nonsense", 1, user="a"), "Invalid configuration key nonsense"),
        (alter(CONNECTIONS, 1, user="a"), "Invalid configuration key connection_creation_rate"),
        (alter(PRODUCER, 1, ip="10.0.0.1"), "Invalid configuration key producer_byte_rate"),
        (alter(CONNECTIONS, 1, ip="10.0.0.1", user="a"), "Invalid quota entity combination"),
        (alter(CONNECTIONS, 1, ip="no such address"), "is not a valid IP"),
        (alter(PRODUCER, 1, team="a"), "Unhandled client quota entity type: team"),
        (alter(PRODUCER, 1), "Invalid empty client quota entity"),
    ],
)
async def test_a_quota_that_makes_no_sense_is_refused(
    strict: Broker, request_: AlterClientQuotasRequest, message: str
) -> None:
    [result] = (await Client(strict, "root").ask(request_)).entries
    assert (result.error_code, message in result.error_message) == (42, True)
    assert not strict.quotas.is_any


async def test_a_producer_is_told_to_pause_and_muted(strict: Broker, clock: SteppedClock) -> None:
    root = Client(strict, "root")
    await root.ask(alter(PRODUCER, 100, user="root"))
    small = await root.ask(produce_request("orders", {0: batch_of(b"x")}), 12)
    assert (small.throttle_time_ms, root.is_muted) == (0, False)
    large = await root.ask(produce_request("orders", {0: batch_of(b"x" * 2_000)}), 12)
    assert large.responses[0].partition_responses[0].error_code == 0
    assert large.throttle_time_ms > 5_000
    assert root.is_muted
    clock.now_ms += 12_000
    assert (await root.ask(produce_request("orders", {0: batch_of(b"x")}), 12)).throttle_time_ms == 0


async def test_a_throttled_fetch_has_no_records_and_its_session_goes_on(strict: Broker, clock: SteppedClock) -> None:
    root = Client(strict, "root")
    await root.ask(produce_request("orders", {0: batch_of(b"x" * 5_000)}), 12)
    await root.ask(alter(CONSUMER, 100, user="root"))
    wanted = [FetchTopic(topic="orders", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    first = await root.ask(FetchRequest(topics=wanted, max_bytes=1 << 20, session_epoch=0), 12)
    assert first.throttle_time_ms == 0
    assert first.responses[0].partitions[0].records
    goes_on = FetchRequest(topics=[], max_bytes=1 << 20, session_id=first.session_id, session_epoch=1)
    second = await root.ask(goes_on, 12)
    assert (second.error_code, second.responses, second.session_id) == (0, [], first.session_id)
    assert second.throttle_time_ms > 1_000
    clock.now_ms += 60_000
    again = FetchRequest(topics=wanted, max_bytes=1 << 20, session_id=first.session_id, session_epoch=2)
    third = await root.ask(again, 12)
    assert (third.throttle_time_ms, bool(third.responses[0].partitions[0].records)) == (0, True)


async def test_others_are_not_throttled(strict: Broker, clock: SteppedClock) -> None:
    root, other = Client(strict, "root"), Client(strict, "root", "default", client_id="other")
    await root.ask(alter(PRODUCER, 100, client_id="tests"))
    await root.ask(produce_request("orders", {0: batch_of(b"x" * 5_000)}), 12)
    assert root.is_muted
    answer = await other.ask(produce_request("orders", {0: batch_of(b"x" * 5_000)}), 12)
    assert (answer.throttle_time_ms, other.is_muted) == (0, False)


async def test_too_many_changes_are_refused_by_newer_versions_and_slowed_down_by_older(
    strict: Broker, clock: SteppedClock
) -> None:
    root = Client(strict, "root")
    await root.ask(alter(MUTATIONS, 1, user="root"))
    burst = await root.ask(CreateTopicsRequest([CreatableTopic("a", 20, 1)]), 7)
    assert [topic.error_code for topic in burst.topics] == [0]
    refused = await root.ask(CreateTopicsRequest([CreatableTopic("b", 1, 1)]), 7)
    assert ([topic.error_code for topic in refused.topics], refused.throttle_time_ms) == ([89], 9_000)
    assert await root.codes(CreatePartitionsRequest([CreatePartitionsTopic("a", 21, None)], 1_000), 3) == {89}
    assert await root.codes(DeleteTopicsRequest([DeleteTopicState("a")]), 6) == {89}
    old = await root.ask(CreateTopicsRequest([CreatableTopic("b", 1, 1)]), 5)
    assert ([topic.error_code for topic in old.topics], old.throttle_time_ms) == ([0], 10_000)
    clock.now_ms += 20_000
    assert await root.codes(CreateTopicsRequest([CreatableTopic("c", 1, 1)]), 7) == {0}


async def test_the_time_of_requests_counts(strict: Broker, clock: SteppedClock) -> None:
    root = Client(strict, "root")
    await root.ask(alter(REQUESTS, 0.001, user="root"))
    pauses = [(await root.ask(MetadataRequest(None, True))).throttle_time_ms for _ in range(20)]
    assert 0 < max(pauses) <= 1_000


async def test_all_nodes_follow_a_quota(start_strict: StartStrict) -> None:
    here, there = await start_strict(0), await start_strict(1)
    await Client(here, "root").ask(alter(PRODUCER, 100, user="alice"))
    async with asyncio.timeout(20):
        while True:
            if there.quotas.is_any:
                break
            await asyncio.sleep(0.01)
    assert there.quotas.table("default").find(PRODUCER, "alice", "") is not None


async def test_without_records_a_fetch_waits_as_before(strict: Broker, clock: SteppedClock) -> None:
    root = Client(strict, "root")
    await root.ask(alter(CONSUMER, 1_000_000, user="root"))
    answer = await root.ask(fetch_request("orders", {0: 0}), 12)
    assert (answer.throttle_time_ms, answer.responses[0].partitions[0].error_code) == (0, 0)


def test_a_real_producer_is_held_to_its_rate(start_broker: StartBroker) -> None:
    """librdkafka reports the pauses, and its connection is muted for them."""
    broker = start_broker()
    with connect(broker) as connection:
        answer = connection.send_for(alter(PRODUCER, 100_000, user="ANONYMOUS"), AlterClientQuotasResponse, 1)
        assert [entry.error_code for entry in answer.entries] == [0]
    seen: list[float] = []
    producer = Producer(
        {"bootstrap.servers": broker.address, "linger.ms": 0, "throttle_cb": lambda e: seen.append(e.throttle_time)}
    )
    began = time.monotonic()
    for _ in range(15):
        producer.produce("orders", b"x" * 100_000)
        producer.flush(30)
    producer.poll(0)
    took_s = time.monotonic() - began
    assert took_s > 2
    assert max(seen) > 0


def test_connections_of_an_address_have_a_rate(start_broker: StartBroker) -> None:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.list_topics(timeout=20)
    with connect(broker) as connection:
        connection.send_for(alter(CONNECTIONS, 1, ip="127.0.0.1"), AlterClientQuotasResponse, 1)
        lines = [connect_quickly(broker) for _ in range(15)]
        assert connection.send_for(MetadataRequest([], False), MetadataResponse, 9).brokers
    served = [line for line in lines if line]
    assert 5 <= len(served) <= 11


def connect_quickly(broker: BrokerProcess) -> bool:
    """Whether a new connection is served within a short time."""
    try:
        with connect(broker, timeout_s=0.3) as line:
            return bool(line.send_for(MetadataRequest([], False), MetadataResponse, 9).brokers)
    except Exception:
        return False
