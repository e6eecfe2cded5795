"""Metadata, ApiVersions and FindCoordinator over the raw protocol: who is there, what exists, what is spoken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker.dispatch import LISTED_ONLY
from headrace.client.connection import BrokerConnection
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.peers import connect, create_topic, metadata
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

GROUP, TRANSACTION, SHARE = 0, 1, 2
EVERY_OPERATION, NOT_ASKED = 3576, -(1 << 31)
"""Of a topic, as a broker of Apache Kafka without an authorizer answers them."""


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(broker) as found:
        yield found


def ask(connection: BrokerConnection, *names: str, create: bool = True, version: int = 13) -> MetadataResponse:
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create)
    return connection.send_for(request, MetadataResponse, version)


@pytest.mark.parametrize("version", range(14))
def test_every_version_shows_the_node_and_the_topic(
    broker: BrokerProcess, connection: BrokerConnection, topic: str, version: int
) -> None:
    create_topic(connection, topic, partitions=3)
    answer = ask(connection, topic, version=version)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(0, broker.host, broker.port)]
    (found,) = answer.topics
    assert (found.error_code, found.name) == (0, topic)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in found.partitions] == [
        (number, 0, [0], [0]) for number in range(3)
    ]


def test_all_topics_or_none(connection: BrokerConnection, topic: str) -> None:
    create_topic(connection, topic)
    everything = connection.send_for(MetadataRequest(None), MetadataResponse, 12)
    assert topic in [found.name for found in everything.topics]
    assert connection.send_for(MetadataRequest([]), MetadataResponse, 12).topics == []
    in_the_oldest = connection.send_for(MetadataRequest([]), MetadataResponse, 0)
    assert topic in [found.name for found in in_the_oldest.topics]


def test_a_topic_is_found_by_its_id(connection: BrokerConnection, topic: str) -> None:
    create_topic(connection, topic)
    (known,) = ask(connection, topic).topics
    for wanted, code in ((known.topic_id, 0), (bytes(range(16)), ErrorCode.UNKNOWN_TOPIC_ID)):
        request = MetadataRequest([MetadataRequestTopic(topic_id=wanted, name=None)])
        (found,) = connection.send_for(request, MetadataResponse, 12).topics
        assert (found.error_code, found.topic_id) == (code, wanted)
        assert found.name == (None if code else topic)


def test_a_topic_is_made_only_if_the_client_allows_it(connection: BrokerConnection, topic: str) -> None:
    (refused,) = ask(connection, topic, create=False).topics
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (made,) = ask(connection, topic).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_told_if_asked_for_of_an_unknown_topic_too(
    connection: BrokerConnection, topic: str, version: int
) -> None:
    create_topic(connection, topic)
    names = [topic, f"{topic}-unknown", "a b"]
    asked = [MetadataRequestTopic(name=name) for name in names]
    for wanted in (True, False):
        request = MetadataRequest(asked, False, include_topic_authorized_operations=wanted)
        answer = connection.send_for(request, MetadataResponse, version)
        assert [(found.name, found.topic_authorized_operations) for found in answer.topics] == [
            (name, EVERY_OPERATION if wanted else NOT_ASKED) for name in names
        ]


def test_without_a_name_there_is_nothing_to_be_authorized_for(connection: BrokerConnection) -> None:
    asked = MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
    request = MetadataRequest([asked], False, include_topic_authorized_operations=True)
    (unknown,) = connection.send_for(request, MetadataResponse, 12).topics
    assert (unknown.error_code, unknown.topic_authorized_operations) == (ErrorCode.UNKNOWN_TOPIC_ID, NOT_ASKED)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(connection: BrokerConnection, name: str) -> None:
    (refused,) = ask(connection, name).topics
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_that_is_named_often_is_described_once(connection: BrokerConnection, topic: str) -> None:
    """Otherwise a small request would bring an answer of any size."""
    create_topic(connection, topic, partitions=1_000)
    answer = ask(connection, *[topic] * 5_000)
    assert [(found.name, len(found.partitions)) for found in answer.topics] == [(topic, 1_000)]


def test_the_cluster_id_outlives_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(node_id=7, default_partitions=4)
    seen = []
    for _ in range(2):
        with connect(broker) as connection:
            answer = metadata(connection, "some")
            seen.append((answer.cluster_id, answer.controller_id, len(answer.topics[0].partitions)))
        broker.stop()
        broker.start()
    assert seen[0] == seen[1]
    assert seen[0][0]
    assert seen[0][1:] == (7, 4)


def test_clients_are_sent_to_the_advertised_address(start_broker: StartBroker) -> None:
    broker = start_broker(advertised="broker.example.com:19092")
    with connect(broker) as connection:
        (node,) = metadata(connection).brokers
    assert (node.host, node.port) == ("broker.example.com", 19092)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_api_versions_lists_every_api(connection: BrokerConnection, version: int) -> None:
    answer = connection.send_for(ApiVersionsRequest("client", "1"), ApiVersionsResponse, version)
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    expected = {api.key: (api.oldest, api.newest) for api in APIS.values()}
    expected |= {api.api_key: (api.min_version, api.max_version) for api in LISTED_ONLY}
    # Produce 0 to 2 is named although it is refused: old librdkafka asks for it (KAFKA-18659).
    assert offered == expected | {0: (0, expected[0][1])}


NEWEST_IN_KAFKA_4_4 = {
    0: 13, 1: 18, 2: 11, 3: 13, 8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 17: 1, 18: 5, 19: 7,
    20: 6, 21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 5, 27: 2, 28: 6, 29: 3, 30: 3, 31: 3, 32: 4, 33: 2, 34: 2, 35: 5,
    36: 2, 37: 3, 38: 3, 39: 2, 40: 2, 41: 3, 42: 3, 43: 2, 44: 1, 45: 1, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0,
    55: 2, 60: 2, 61: 0, 64: 0, 65: 0, 66: 2, 68: 1, 69: 1, 74: 1, 75: 0, 76: 1, 77: 1, 78: 2, 79: 2, 80: 1, 81: 0,
    83: 0, 84: 0, 85: 1, 86: 0, 87: 1, 88: 1, 89: 1, 90: 1, 91: 0, 92: 0, 93: 0, 94: 0,
}  # fmt: skip


def test_the_list_is_that_of_a_kafka_broker(connection: BrokerConnection) -> None:
    """franz-go's tools tell a broker's version by it; they do not look at 57, 71 and 72."""
    answer = connection.send_for(ApiVersionsRequest("client", "1"), ApiVersionsResponse)
    assert {api.api_key: api.max_version for api in answer.api_keys} == NEWEST_IN_KAFKA_4_4


@pytest.mark.parametrize("software", [("", "1"), ("a client", "1"), ("client", "-1"), ("client", "")])
def test_a_library_without_a_proper_name_and_version_is_refused(
    connection: BrokerConnection, software: tuple[str, str]
) -> None:
    """As by Kafka (KIP-511)."""
    for version in range(3, 6):
        answer = connection.send_for(ApiVersionsRequest(*software), ApiVersionsResponse, version)
        assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    assert connection.send_for(ApiVersionsRequest(*software), ApiVersionsResponse, 2).error_code == 0


def test_a_client_that_means_another_cluster_or_node_is_told_to_start_over(connection: BrokerConnection) -> None:
    cluster_id = ask(connection).cluster_id
    for request, code in (
        (ApiVersionsRequest("client", "1", cluster_id, 0), 0),
        (ApiVersionsRequest("client", "1", "another", -1), ErrorCode.REBOOTSTRAP_REQUIRED),
        (ApiVersionsRequest("client", "1", cluster_id, 5), ErrorCode.REBOOTSTRAP_REQUIRED),
    ):
        assert connection.send_for(request, ApiVersionsResponse, 5).error_code == code


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_a_groups_coordinator(
    broker: BrokerProcess, connection: BrokerConnection, version: int
) -> None:
    request = FindCoordinatorRequest(key="readers", key_type=GROUP, coordinator_keys=["readers"])
    answer = connection.send_for(request, FindCoordinatorResponse, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 0, broker.host, broker.port)


def test_coordinators_that_do_not_exist_here_are_refused_for_good(connection: BrokerConnection) -> None:
    for kind in (SHARE, 99):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b"])
        answer = connection.send_for(request, FindCoordinatorResponse, 6)
        assert [found.error_code for found in answer.coordinators] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_coordinator_of_a_transactional_id_gives_it_a_producer_id(connection: BrokerConnection) -> None:
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["mover"])
    answer = connection.send_for(request, FindCoordinatorResponse, 6)
    assert [(found.error_code, found.node_id) for found in answer.coordinators] == [(0, 0)]
    ask = InitProducerIdRequest(transactional_id="mover", transaction_timeout_ms=60_000)
    first, again = (connection.send_for(ask, InitProducerIdResponse) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, 1)
