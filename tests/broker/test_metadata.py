"""Metadata, ApiVersions and FindCoordinator over the raw protocol: who is there, what exists, what is spoken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.connection import Connection
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


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with connect(broker) as found:
        yield found


def ask(connection: Connection, *names: str, create: bool = True, version: int = 13) -> MetadataResponse:
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create)
    return connection.send_for(request, MetadataResponse, version)


@pytest.mark.parametrize("version", range(14))
def test_every_version_shows_the_node_and_the_topic(
    broker: BrokerProcess, connection: Connection, topic: str, version: int
) -> None:
    create_topic(connection, topic, partitions=3)
    answer = ask(connection, topic, version=version)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(0, broker.host, broker.port)]
    (found,) = answer.topics
    assert (found.error_code, found.name) == (0, topic)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in found.partitions] == [
        (number, 0, [0], [0]) for number in range(3)
    ]


def test_all_topics_or_none(connection: Connection, topic: str) -> None:
    create_topic(connection, topic)
    everything = connection.send_for(MetadataRequest(None), MetadataResponse, 12)
    assert topic in [found.name for found in everything.topics]
    assert connection.send_for(MetadataRequest([]), MetadataResponse, 12).topics == []
    in_the_oldest = connection.send_for(MetadataRequest([]), MetadataResponse, 0)
    assert topic in [found.name for found in in_the_oldest.topics]


def test_a_topic_is_found_by_its_id(connection: Connection, topic: str) -> None:
    create_topic(connection, topic)
    (known,) = ask(connection, topic).topics
    for wanted, code in ((known.topic_id, 0), (bytes(range(16)), ErrorCode.UNKNOWN_TOPIC_ID)):
        request = MetadataRequest([MetadataRequestTopic(topic_id=wanted, name=None)])
        (found,) = connection.send_for(request, MetadataResponse, 12).topics
        assert (found.error_code, found.topic_id) == (code, wanted)
        assert found.name == (None if code else topic)


def test_a_topic_is_made_only_if_the_client_allows_it(connection: Connection, topic: str) -> None:
    (refused,) = ask(connection, topic, create=False).topics
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (made,) = ask(connection, topic).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(connection: Connection, name: str) -> None:
    (refused,) = ask(connection, name).topics
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_that_is_named_often_is_described_once(connection: Connection, topic: str) -> None:
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
def test_every_version_of_api_versions_lists_every_api(connection: Connection, version: int) -> None:
    answer = connection.send_for(ApiVersionsRequest("client", "1"), ApiVersionsResponse, version)
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    expected = {api.key: (api.oldest, api.newest) for api in APIS.values()}
    # Produce 0 to 2 is named although it is refused: old librdkafka asks for it (KAFKA-18659).
    assert offered == expected | {0: (0, expected[0][1])}


def test_a_client_that_means_another_cluster_or_node_is_told_to_start_over(connection: Connection) -> None:
    cluster_id = ask(connection).cluster_id
    for request, code in (
        (ApiVersionsRequest("client", "1", cluster_id, 0), 0),
        (ApiVersionsRequest("client", "1", "another", -1), ErrorCode.REBOOTSTRAP_REQUIRED),
        (ApiVersionsRequest("client", "1", cluster_id, 5), ErrorCode.REBOOTSTRAP_REQUIRED),
    ):
        assert connection.send_for(request, ApiVersionsResponse, 5).error_code == code


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_a_groups_coordinator(broker: BrokerProcess, connection: Connection, version: int) -> None:
    request = FindCoordinatorRequest(key="readers", key_type=GROUP, coordinator_keys=["readers"])
    answer = connection.send_for(request, FindCoordinatorResponse, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 0, broker.host, broker.port)


def test_coordinators_that_do_not_exist_here_are_refused_for_good(connection: Connection) -> None:
    for kind in (SHARE, 99):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b"])
        answer = connection.send_for(request, FindCoordinatorResponse, 6)
        assert [found.error_code for found in answer.coordinators] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_transactional_id_has_a_coordinator_that_refuses_it_for_good(connection: Connection) -> None:
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["mover"])
    answer = connection.send_for(request, FindCoordinatorResponse, 6)
    assert [(found.error_code, found.node_id) for found in answer.coordinators] == [(0, 0)]
    init = connection.send_for(InitProducerIdRequest(transactional_id="mover"), InitProducerIdResponse)
    assert init.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
