"""Configs of groups, and ListConfigResources. Error codes and messages are those that Apache Kafka 4.3 answers."""

from __future__ import annotations

import pytest

from headrace.broker.configs.groups import GROUP_CONFIGS, check_group_changes
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.broker.administrator import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    Administrator,
    versions,
)
from tests.broker.peers import connect
from tests.conftest import StartBroker, StartRedis

FROM_GROUP, FROM_DEFAULT = 8, 5
SESSION = "consumer.session.timeout.ms"
INVALID_CONFIG, INVALID_REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST


def own(administrator: Administrator, group: str) -> dict[str, str | None]:
    configs = administrator.describe(group, resource_type=GROUP).configs
    return {config.name: config.value for config in configs if config.config_source == FROM_GROUP}


def listed(administrator: Administrator, *kinds: int, version: int = 1) -> list[tuple[str, int]]:
    request = ListConfigResourcesRequest(list(kinds))
    answer = administrator.connection.send_for(request, ListConfigResourcesResponse, version)
    assert answer.error_code == 0
    return [(resource.resource_name, resource.resource_type) for resource in answer.config_resources]


@pytest.mark.parametrize("version", versions(32))
def test_a_group_that_nothing_was_set_for_has_the_defaults(
    administrator: Administrator, topic: str, version: int
) -> None:
    result = administrator.describe(topic, resource_type=GROUP, version=version)
    assert (result.error_code, {config.name for config in result.configs}) == (0, set(GROUP_CONFIGS))
    session = next(config for config in result.configs if config.name == SESSION)
    assert (session.value, session.config_source, session.read_only) == ("45000", FROM_DEFAULT, False)
    assert [(s.name, s.value, s.source) for s in session.synonyms] == [(f"group.{SESSION}", "45000", FROM_DEFAULT)]


@pytest.mark.parametrize("version", versions(44))
def test_values_are_set_replaced_and_deleted(administrator: Administrator, topic: str, version: int) -> None:
    changes = [(SESSION, SET, "50000"), ("share.auto.offset.reset", SET, "by_duration:PT1H")]
    assert administrator.alter(topic, changes, GROUP, version, validate_only=True) == (0, None)
    assert own(administrator, topic) == {}
    assert administrator.alter(topic, changes, GROUP, version) == (0, None)
    assert own(administrator, topic) == {SESSION: "50000", "share.auto.offset.reset": "by_duration:PT1H"}
    (session,) = administrator.describe(topic, [SESSION], GROUP).configs
    assert [(s.name, s.value, s.source) for s in session.synonyms] == [
        (SESSION, "50000", FROM_GROUP),
        (f"group.{SESSION}", "45000", FROM_DEFAULT),
    ]
    assert administrator.replace(topic, {SESSION: "50001"}, GROUP) == (0, None)
    assert own(administrator, topic) == {SESSION: "50001"}
    assert administrator.alter(topic, [(SESSION, DELETE, None), ("no.such", DELETE, None)], GROUP) == (0, None)
    assert own(administrator, topic) == {}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (SESSION, "1", f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        (SESSION, "abc", f"Invalid value abc for configuration {SESSION}: Not a number of type INT"),
        ("consumer.assignment.interval.ms", "-1", "Value must be at least 0"),
        ("share.auto.offset.reset", "none", "The value must be either 'earliest', 'latest' or of the format"),
        ("share.auto.offset.reset", "by_duration:-PT1H", "The value must be either 'earliest', 'latest' or of"),
        ("share.auto.offset.reset", "by_duration:P", "The value must be either 'earliest', 'latest' or of"),
        ("share.isolation.level", "READ_COMMITTED", "String must be one of: read_committed, read_uncommitted"),
        ("share.record.lock.duration.ms", "14999", "equal to group.share.min.record.lock.duration.ms"),
        ("share.delivery.count.limit", "1", "Value must be at least 2"),
        ("share.delivery.count.limit", "11", "equal to group.share.max.delivery.count.limit"),
        ("share.partition.max.record.locks", "99", "Value must be at least 100"),
        ("share.renew.acknowledge.enable", "x", "Expected value to be either true or false"),
        ("streams.num.standby.replicas", "3", "equal to group.streams.max.standby.replicas"),
        ("no.such", "1", "Unknown group config name: no.such"),
        ("retention.ms", "1", "Unknown group config name: retention.ms"),
    ],
)
def test_a_bad_value_is_refused_in_kafka_s_words(key: str, value: str, words: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_group_changes({SESSION: "50000", key: value}, {})
    assert raised.value.code == INVALID_CONFIG
    assert words in (raised.value.message or "")


@pytest.mark.parametrize("value", ["earliest", "by_duration:P1D", "by_duration:P2DT3H4M5.6S", "by_duration:PT0S"])
def test_where_a_share_group_begins_can_be_said_in_many_ways(value: str) -> None:
    assert check_group_changes({"share.auto.offset.reset": value}, {}) == {"share.auto.offset.reset": value}


def test_what_kafka_refuses_changes_nothing(administrator: Administrator, topic: str) -> None:
    assert administrator.alter(topic, [(SESSION, SET, "1")], GROUP)[0] == INVALID_CONFIG
    assert administrator.alter(topic, [(SESSION, APPEND, "45000")], GROUP) == (
        INVALID_CONFIG,
        f"Can't APPEND to key {SESSION} because its type is not LIST.",
    )
    no_name = (INVALID_REQUEST, "Default group resources are not allowed.")
    assert administrator.alter("", [(SESSION, SET, "50000")], GROUP) == no_name
    assert administrator.replace("", {SESSION: "50000"}, GROUP) == no_name
    assert own(administrator, topic) == {}


def test_any_name_of_a_group_is_taken(administrator: Administrator, topic: str) -> None:
    for name in (f"{topic} a:b{{}}", f"{topic}\n", "x" * 300):
        assert administrator.alter(name, [(SESSION, SET, "50000")], GROUP) == (0, None)
        assert own(administrator, name) == {SESSION: "50000"}
        assert (name, GROUP) in listed(administrator, GROUP)
        assert administrator.replace(name, {}, GROUP) == (0, None)


def test_what_has_configs_is_listed(administrator: Administrator, topic: str) -> None:
    assert administrator.create(topic).error_code == 0
    assert (topic, GROUP) not in listed(administrator, GROUP)
    assert administrator.alter(topic, [(SESSION, SET, "50000")], GROUP) == (0, None)
    everything = listed(administrator)
    assert {(topic, GROUP), (topic, TOPIC), ("0", BROKER), ("0", BROKER_LOGGER)} <= set(everything)
    assert listed(administrator, BROKER, BROKER) == [("0", BROKER)]
    assert listed(administrator, CLIENT_METRICS) == listed(administrator, version=0) == []
    assert administrator.replace(topic, {}, GROUP) == (0, None)
    assert (topic, GROUP) not in listed(administrator)


@pytest.mark.parametrize("kinds", [[99], [0], [GROUP, 64]])
def test_what_can_have_no_configs_cannot_be_listed(administrator: Administrator, kinds: list[int]) -> None:
    request = ListConfigResourcesRequest(kinds)
    answer = administrator.connection.send_for(request, ListConfigResourcesResponse, 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_any_node_answers_for_any_group(start_broker: StartBroker, start_redis: StartRedis) -> None:
    redis = start_redis()
    brokers = [start_broker(redis=redis.url, node_id=number) for number in (0, 1)]
    with connect(brokers[0]) as one, connect(brokers[1]) as two:
        here, there = Administrator(one), Administrator(two)
        for name in ("a", "b", "c", "d"):
            assert here.alter(name, [(SESSION, SET, "50000")], GROUP) == (0, None)
            assert own(there, name) == own(here, name) == {SESSION: "50000"}
        assert listed(there, GROUP) == [(name, GROUP) for name in ("a", "b", "c", "d")]
