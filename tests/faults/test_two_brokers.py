"""Two brokers on one Redis: each leads its share, and what one leaves the other takes over."""

from __future__ import annotations

import time
from signal import Signals

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.peers import (
    PRODUCE_BY_NAME,
    IdempotentProducer,
    batch_of,
    connect,
    create_topic,
    fetch,
    metadata,
    produce,
    produce_request,
    values_of,
)
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.steady_producer import SteadyProducer

PARTITIONS = 16
LEASE_MS = 1_500


@pytest.fixture
def brokers(start_broker: StartBroker, start_redis: StartRedis) -> tuple[BrokerProcess, BrokerProcess]:
    url = start_redis("everysec").url
    one = start_broker(redis=url, node_id=1, node_lease_ms=LEASE_MS)
    two = start_broker(redis=url, node_id=2, node_lease_ms=LEASE_MS)
    wait_until(lambda: nodes_of(one) == nodes_of(two) == {1, 2}, "the brokers do not know each other")
    return one, two


def nodes_of(broker: BrokerProcess) -> set[int]:
    """The nodes in a broker's metadata."""
    with connect(broker) as connection:
        return {node.node_id for node in metadata(connection).brokers}


def leaders_of(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """Partition -> its leader, as a broker's metadata has it."""
    with connect(broker) as connection:
        (found,) = metadata(connection, topic).topics
        return {partition.partition_index: partition.leader_id for partition in found.partitions}


def latest(connection: BrokerConnection, topic: str, partition: int) -> int:
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=partition, timestamp=-1)])
    answer = connection.send_for(ListOffsetsRequest(topics=[asked]), ListOffsetsResponse, 7)
    return answer.topics[0].partitions[0].offset


def make_topic(broker: BrokerProcess, topic: str) -> None:
    with connect(broker) as connection:
        create_topic(connection, topic, PARTITIONS)


def test_both_serve_each_leads_its_share_and_names_the_other(
    brokers: tuple[BrokerProcess, BrokerProcess], topic: str
) -> None:
    one, two = brokers
    make_topic(one, topic)
    leaders = leaders_of(one, topic)
    assert leaders == leaders_of(two, topic)
    assert set(leaders.values()) == {1, 2}
    for node, broker in ((1, one), (2, two)):
        with connect(broker) as connection:
            for partition, leader in leaders.items():
                expected = 0 if leader == node else ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert produce(connection, topic, {partition: batch_of(b"x")})[partition].error_code == expected
                assert fetch(connection, topic, {partition: 0})[partition].error_code == expected


def test_a_producer_goes_on_while_one_broker_is_killed_and_comes_back(
    brokers: tuple[BrokerProcess, BrokerProcess], topic: str
) -> None:
    one, two = brokers
    addresses = f"{one.address},{two.address}"
    make_topic(one, topic)
    with SteadyProducer(addresses, topic, PARTITIONS) as producer:
        one.kill()
        wait_until(lambda: set(leaders_of(two, topic).values()) == {2}, "the partitions do not move")
        producer.goes_on()
        one.start()
        wait_until(lambda: set(leaders_of(two, topic).values()) == {1, 2}, "the partitions do not come back")
        producer.goes_on()
        assert two.stop() == 0
        producer.goes_on()
    producer.check(one.address)


def test_a_broker_that_leads_again_knows_what_was_written_meanwhile(
    brokers: tuple[BrokerProcess, BrokerProcess], topic: str
) -> None:
    """A partition goes to a second node and back; the first must not answer from what it remembers."""
    one, two = brokers
    make_topic(one, topic)
    partition = next(number for number, leader in leaders_of(one, topic).items() if leader == 2)
    with connect(two) as connection:
        assert produce(connection, topic, {partition: batch_of(b"by two")})[partition].error_code == 0
    two.kill()
    with connect(one) as connection:

        def taken_over() -> bool:
            return produce(connection, topic, {partition: batch_of(b"by one")})[partition].error_code == 0

        wait_until(taken_over, "the partition does not move")
        two.start()
        wait_until(lambda: leaders_of(one, topic)[partition] == 2, "the partition does not go back")
        with connect(two) as other:
            for _ in range(10):
                assert produce(other, topic, {partition: batch_of(b"by two")})[partition].error_code == 0
        two.kill()
        wait_until(lambda: leaders_of(one, topic)[partition] == 1, "the partition does not move again")
        assert latest(connection, topic, partition) == 12
        assert len(values_of(fetch(connection, topic, {partition: 0})[partition])) == 12


def test_a_node_id_that_is_taken_is_refused_in_one_sentence(
    brokers: tuple[BrokerProcess, BrokerProcess], start_broker: StartBroker
) -> None:
    with pytest.raises(AssertionError, match="node id 1 is in use by a broker at"):
        start_broker(redis=brokers[0].settings["redis"], node_id=1, node_lease_ms=LEASE_MS)


@pytest.mark.parametrize("form", ["log", "stream"])
def test_what_follows_a_batch_on_its_way_to_a_frozen_node_is_refused_for_now(
    brokers: tuple[BrokerProcess, BrokerProcess], topic: str, form: str
) -> None:
    """To librdkafka another error means a new epoch, and to send again what the frozen node may have written."""
    one, two = brokers
    with connect(one) as connection:
        create_topic(connection, topic, 1, {"headrace.format": form})
    leader, other = (one, two) if leaders_of(one, topic)[0] == 1 else (two, one)
    with connect(leader) as to_leader, connect(other) as to_other:
        producer = IdempotentProducer(to_leader, topic)
        assert producer.send(0)[0] == ErrorCode.NONE
        leader.send_signal(Signals.SIGSTOP)
        to_leader.ask(produce_request(topic, {0: producer.batch(1)}), PRODUCE_BY_NAME)
        node_id = other.settings["node_id"]
        wait_until(lambda: leaders_of(other, topic)[0] == node_id, "nobody takes over")
        producer.connection = to_other
        until_s = time.monotonic() + 3 * LEASE_MS / 1000
        while time.monotonic() < until_s:
            assert producer.send(2)[0] == ErrorCode.KAFKA_STORAGE_ERROR
        leader.send_signal(Signals.SIGCONT)
