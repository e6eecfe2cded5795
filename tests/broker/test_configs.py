"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs over TCP, in every version."""

from __future__ import annotations

from threading import Thread

import pytest

from headrace.store.topic_configs.table import TOPIC_CONFIGS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.administrator import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    FROM_DEFAULT,
    FROM_TOPIC,
    GROUP,
    SET,
    SUBTRACT,
    Administrator,
    Outcome,
    new_topic,
    versions,
)
from tests.broker.peers import batch_of, connect, metadata, produce
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis

TYPES_SINCE = 3
LIST, LONG = 7, 5


@pytest.fixture
def created(administrator: Administrator, topic: str) -> str:
    assert administrator.create(new_topic(topic, configs={"retention.ms": "1000"})).error_code == 0
    return topic


@pytest.mark.parametrize("version", versions(32))
def test_all_configs_of_a_topic_are_described(administrator: Administrator, created: str, version: int) -> None:
    result = administrator.describe(created, version=version)
    assert (result.error_code, result.error_message, result.resource_name) == (0, None, created)
    configs = {config.name: config for config in result.configs}
    assert configs.keys() == TOPIC_CONFIGS.keys()
    assert not any(config.is_sensitive for config in result.configs)
    retention, cleanup = configs["retention.ms"], configs["cleanup.policy"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", FROM_TOPIC, False)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "1000", FROM_TOPIC),
        ("log.retention.ms", "604800000", FROM_DEFAULT),
    ]
    assert (cleanup.value, cleanup.config_source) == ("delete", FROM_DEFAULT)
    assert configs["headrace.topic.id"].read_only
    if version >= TYPES_SINCE:
        assert (retention.config_type, cleanup.config_type) == (LONG, LIST)
        assert retention.documentation == "Age at which records are deleted; -1: never."


def test_only_what_was_asked_for_is_described(administrator: Administrator, created: str) -> None:
    result = administrator.describe(created, ["segment.ms", "no.such"], synonyms=False, documentation=False)
    (config,) = result.configs
    assert (config.name, config.synonyms, config.documentation) == ("segment.ms", [], None)


def test_the_topic_s_id_is_shown_for_people(administrator: Administrator, created: str) -> None:
    value = administrator.config(created, "headrace.topic.id").value
    assert value is not None
    assert value.startswith("top_")
    assert len(value) == 30


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "words"),
    [
        (2, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'no-such-topic' does not exist."),
        (2, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (BROKER, "9", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 0 or empty string, but received 9"),
        (BROKER, "zero", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: zero"),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (0, "x", ErrorCode.INVALID_REQUEST, "Unexpected resource type 0"),
    ],
)
def test_what_cannot_be_described_says_why(
    administrator: Administrator, resource_type: int, name: str, code: ErrorCode, words: str
) -> None:
    result = administrator.describe(name, resource_type=resource_type)
    assert (result.error_code, result.configs) == (code, [])
    assert words in (result.error_message or "")


@pytest.mark.parametrize("version", versions(44))
def test_single_configs_are_set_and_deleted(administrator: Administrator, created: str, version: int) -> None:
    changes = [("segment.ms", SET, "77"), ("retention.ms", DELETE, None)]
    assert administrator.alter(created, changes, version=version, validate_only=True) == (0, None)
    assert administrator.own_configs(created) == {"retention.ms": "1000"}
    assert administrator.alter(created, changes, version=version) == (0, None)
    assert administrator.own_configs(created) == {"segment.ms": "77"}


def test_lists_are_made_longer_and_shorter(administrator: Administrator, created: str) -> None:
    for operation, value, policy in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        assert administrator.alter(created, [("cleanup.policy", operation, value)]) == (0, None)
        assert administrator.config(created, "cleanup.policy").value == policy


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([("retention.ms", SET, "-9")], ErrorCode.INVALID_CONFIG, "Value must be at least -1"),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG,
         "Can't APPEND to key retention.ms because its type is not LIST."),
        ([("cleanup.policy", APPEND, "sweep")], ErrorCode.INVALID_CONFIG, "String must be one of: compact, delete"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST,
         "Error due to duplicate config keys"),
        ([("segment.ms", SET, "1"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
        ([("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")], ErrorCode.INVALID_CONFIG,
         "conflict topic config setting"),
        ([("headrace.topic.id", SET, "top_x")], ErrorCode.INVALID_CONFIG, "headrace.topic.id is read-only"),
        ([("headrace.stream.sequence.bits", SET, "11")], ErrorCode.INVALID_CONFIG, "cannot be changed after"),
        ([("headrace.format", SET, "stream")], ErrorCode.INVALID_CONFIG, "headrace.format cannot be changed"),
    ],
)  # fmt: skip
def test_a_bad_change_changes_nothing(
    administrator: Administrator, created: str, changes: list[tuple[str, int, str]], code: ErrorCode, words: str
) -> None:
    found, message = administrator.alter(created, changes)
    assert found == code
    assert words in (message or "")
    assert administrator.own_configs(created) == {"retention.ms": "1000"}


@pytest.mark.parametrize("version", versions(33))
def test_all_configs_are_replaced_at_once(administrator: Administrator, created: str, version: int) -> None:
    new: dict[str, str | None] = {"segment.ms": "88", "headrace.format": "log"}
    assert administrator.replace(created, new, version=version, validate_only=True) == (0, None)
    assert administrator.own_configs(created) == {"retention.ms": "1000"}
    assert administrator.replace(created, new, version=version) == (0, None)
    assert administrator.own_configs(created) == new
    assert administrator.replace(created, {"retention.ms": None})[0] == ErrorCode.INVALID_REQUEST
    assert administrator.replace(created, {"retention.ms": "soon"})[0] == ErrorCode.INVALID_CONFIG
    assert administrator.own_configs(created) == new


def test_what_was_described_can_be_sent_back(administrator: Administrator, created: str) -> None:
    described = {config.name: config.value for config in administrator.describe(created).configs}
    assert administrator.replace(created, described) == (0, None)


def test_an_unknown_topic_and_an_empty_name_cannot_be_altered(administrator: Administrator, topic: str) -> None:
    change = [("retention.ms", SET, "1")]
    assert administrator.alter(topic, change) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"The topic '{topic}' does not exist.",
    )
    assert administrator.alter("", change) == (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")


def test_a_resource_may_be_named_once(administrator: Administrator, created: str) -> None:
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(2, created), AlterConfigsResource(2, created)])
    answer = administrator.connection.send_for(request, IncrementalAlterConfigsResponse, 1)
    assert [(r.error_code, r.error_message) for r in answer.responses] == [
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    ] * 2


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "words"),
    [
        (BROKER_LOGGER, "0", "root", "log_level"),
        (CLIENT_METRICS, "m", "interval.ms", "does not collect client metrics"),
        (99, "x", "y", "Unknown resource type 99"),
    ],
)
def test_what_cannot_be_altered_says_what_to_do_instead(
    administrator: Administrator, resource_type: int, name: str, key: str, words: str
) -> None:
    for code, message in (
        administrator.alter(name, [(key, SET, "1")], resource_type),
        administrator.replace(name, {key: "1"}, resource_type),
    ):
        assert code == ErrorCode.INVALID_REQUEST
        assert words in (message or "")


def test_a_changed_config_acts_at_once(administrator: Administrator, created: str) -> None:
    batch = batch_of(b"x" * 500)
    assert administrator.alter(created, [("max.message.bytes", SET, "100")]) == (0, None)
    refused = produce(administrator.connection, created, {0: batch})[0]
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert administrator.alter(created, [("max.message.bytes", DELETE, None)]) == (0, None)
    assert produce(administrator.connection, created, {0: batch})[0].error_code == 0


def test_two_brokers_see_each_other_s_changes_at_once(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> None:
    redis = start_redis()
    first, second = (start_broker(redis=redis.url, node_id=number) for number in (0, 1))
    with connect(first) as one, connect(second) as two:
        here, there = Administrator(one), Administrator(two)
        assert here.create(topic).error_code == 0
        for number in range(1, 6):
            assert there.alter(topic, [("retention.ms", SET, str(number))]) == (0, None)
            assert here.alter(topic, [("segment.ms", SET, str(number))]) == (0, None)
            assert there.own_configs(topic) == {"retention.ms": str(number), "segment.ms": str(number)}
            assert here.add_partitions(topic, number * 2) == (0, None)
            assert there.add_partitions(topic, number * 2 + 1) == (0, None)
        assert here.create(topic).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_changed_config_acts_at_once_at_every_broker(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> None:
    url = start_redis().url
    with (
        connect(start_broker(redis=url, node_id=1)) as first,
        connect(start_broker(redis=url, node_id=2)) as second,
    ):
        wait_until(lambda: len(metadata(first).brokers) == len(metadata(second).brokers) == 2, "they do not meet")
        administrator, batch = Administrator(first), batch_of(b"x" * 500)
        administrator.create(new_topic(topic, -1, -1, assignments={0: [2]}))
        assert produce(second, topic, {0: batch})[0].error_code == 0
        administrator.alter(topic, [("max.message.bytes", SET, "100")])
        assert produce(second, topic, {0: batch})[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
        administrator.replace(topic, {})
        assert produce(second, topic, {0: batch})[0].error_code == 0


def test_changes_at_the_same_moment_are_all_kept(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> None:
    redis = start_redis()
    brokers = [start_broker(redis=redis.url, node_id=number) for number in (0, 1)]
    names = ["retention.ms", "segment.ms", "flush.ms", "delete.retention.ms"]
    outcomes: list[Outcome] = []

    def change(name: str, broker: BrokerProcess) -> None:
        with connect(broker) as connection:
            outcomes.extend(Administrator(connection).alter(topic, [(name, SET, str(n))]) for n in range(1, 16))

    with connect(brokers[0]) as connection:
        administrator = Administrator(connection)
        administrator.create(topic)
        threads = [Thread(target=change, args=(name, brokers[at % 2])) for at, name in enumerate(names)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [(0, None)] * 60
        assert administrator.own_configs(topic) == dict.fromkeys(names, "15")


def test_a_resource_that_is_asked_for_a_thousand_times_is_described_once(
    administrator: Administrator, created: str
) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(2, created, None)] * 1_000)
    assert len(administrator.connection.send_for(request, DescribeConfigsResponse, 4).results) == 1
