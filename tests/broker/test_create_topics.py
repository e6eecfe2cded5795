"""CreateTopics over TCP, in every version."""

from __future__ import annotations

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.create_topics import CreatableTopic
from headrace.wire.schema import ZERO_UUID
from tests.broker.administrator import FROM_DEFAULT, FROM_SETTING, FROM_TOPIC, Administrator, new_topic, versions
from tests.broker.peers import Bystander, connect, metadata
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

CONFIGS_SINCE, ID_SINCE = 5, 7


def partitions_of(administrator: Administrator, topic: str) -> int:
    (found,) = metadata(administrator.connection, topic).topics
    return len(found.partitions)


@pytest.mark.parametrize("version", versions(19))
def test_a_topic_is_made_and_described(administrator: Administrator, topic: str, version: int) -> None:
    result = administrator.create(new_topic(topic, 3, configs={"retention.ms": " 1000 "}), version)
    assert (result.name, result.error_code, result.error_message) == (topic, 0, None)
    assert (result.topic_id != ZERO_UUID) is (version >= ID_SINCE)
    if version >= CONFIGS_SINCE:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: config for config in result.configs or []}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", FROM_TOPIC)
        assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", FROM_DEFAULT)
        assert configs["headrace.topic.id"].value == administrator.config(topic, "headrace.topic.id").value
        assert configs["headrace.topic.id"].read_only
    assert partitions_of(administrator, topic) == 3
    assert administrator.create(topic, version).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_the_id_that_is_answered_is_the_topic_s_id(administrator: Administrator, topic: str) -> None:
    created = administrator.create(topic)
    (found,) = metadata(administrator.connection, topic).topics
    assert created.topic_id == found.topic_id


@pytest.mark.parametrize("version", versions(19))
def test_validating_makes_nothing(administrator: Administrator, topic: str, version: int) -> None:
    for _ in range(2):
        assert administrator.create(topic, version, validate_only=True).error_code == 0
    bad = administrator.create(new_topic(topic, configs={"retention.ms": "x"}), version, validate_only=True)
    assert bad.error_code == ErrorCode.INVALID_CONFIG
    assert administrator.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_numbers_left_to_the_broker_are_its_defaults(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(default_partitions=5, log_retention_ms=1234)
    with connect(broker) as connection:
        administrator = Administrator(connection)
        result = administrator.create(new_topic(topic, -1, -1))
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 5, 1)
        configs = {config.name: config for config in result.configs or []}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1234", FROM_SETTING)


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (new_topic("t", 0), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive"),
        (new_topic("t", -2), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive"),
        (new_topic("t", 1_001), ErrorCode.INVALID_PARTITIONS, "at most 1000 partitions"),
        (new_topic("t", 2**31 - 1), ErrorCode.INVALID_PARTITIONS, "at most 1000 partitions"),
        (new_topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1"),
        (new_topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0"),
        (new_topic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR,
         "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
         "only 1 broker(s) are registered."),
        (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (new_topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        (new_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "characters other than ASCII alphanumerics"),
        (new_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
        (new_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "Creation of internal topic"),
        (new_topic("t", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (new_topic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG,
         "Null value not supported for topic configs: retention.ms"),
        (new_topic("t", configs={"remote.storage.enable": "true"}), ErrorCode.INVALID_CONFIG, "without --lake"),
        (new_topic("t", configs={"headrace.format": "table"}), ErrorCode.INVALID_CONFIG, "log, stream"),
        (new_topic("t", configs={"headrace.stream.sequence.bits": "23"}), ErrorCode.INVALID_CONFIG, "no more than 22"),
        (new_topic("t", 1, -1, assignments={0: [0]}), ErrorCode.INVALID_REQUEST, "numPartitions was not set to -1"),
        (new_topic("t", -1, 1, assignments={0: [0]}), ErrorCode.INVALID_REQUEST, "replication factor was not set"),
        (new_topic("t", -1, -1, assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        (new_topic("t", -1, -1, assignments={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT,
         "includes broker 7, but no such broker is registered"),
        (new_topic("t", -1, -1, assignments={0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (new_topic("t", -1, -1, assignments={0: [0], 2: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT,
         "consecutive 0-based integer sequence"),
    ],
)  # fmt: skip
def test_what_kafka_refuses_is_refused_in_its_words(
    administrator: Administrator, asked: CreatableTopic, code: ErrorCode, words: str
) -> None:
    result = administrator.create(asked)
    assert result.error_code == code
    assert words in (result.error_message or "")
    assert administrator.create(asked, validate_only=True).error_code == code


def test_replicas_may_be_assigned_by_hand(administrator: Administrator, topic: str) -> None:
    result = administrator.create(new_topic(topic, -1, -1, assignments={1: [0], 0: [0]}))
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert partitions_of(administrator, topic) == 2


def test_a_name_that_is_asked_for_twice_is_refused_and_others_are_made(
    administrator: Administrator, topic: str
) -> None:
    other = f"{topic}-other"
    results = administrator.create_all([new_topic(topic), new_topic(other), new_topic(topic)])
    assert [(r.name, r.error_code) for r in results] == [(topic, ErrorCode.INVALID_REQUEST), (other, 0)]
    assert results[0].error_message == "Duplicate topic name."
    assert administrator.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_differ_in_dots_and_underscores_collide(administrator: Administrator, topic: str) -> None:
    assert administrator.create(f"{topic}.a_b").error_code == 0
    result = administrator.create(f"{topic}_a.b")
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message == f"Topic '{topic}_a.b' collides with existing topic: {topic}.a_b"


def test_the_limits_of_the_broker_hold(start_broker: StartBroker) -> None:
    broker = start_broker(topics_max=2, topic_partitions_max=8, partitions_max=10)
    with connect(broker) as connection:
        administrator = Administrator(connection)
        assert administrator.create(new_topic("a", 4)).error_code == 0
        assert administrator.create(new_topic("b", 7)).error_code == ErrorCode.INVALID_PARTITIONS
        assert administrator.create(new_topic("b", 5)).error_code == 0
        code, words = administrator.add_partitions("b", 7)
        assert (code, words) == (
            ErrorCode.INVALID_PARTITIONS,
            "All topics together may have at most 10 partitions (setting partitions_max); there are 9.",
        )
        assert administrator.create("c").error_code == ErrorCode.POLICY_VIOLATION


def test_validating_counts_what_it_found_good(start_broker: StartBroker) -> None:
    with connect(start_broker(topics_max=3, topic_partitions_max=8, partitions_max=10)) as connection:
        administrator = Administrator(connection)
        sizes = {"a": 4, "b": 5, "c": 2, "d": 1, "e": 1}
        results = administrator.create_all([new_topic(*row) for row in sizes.items()], validate_only=True)
        assert [(result.name, result.error_code) for result in results] == [
            ("a", 0),
            ("b", 0),
            ("c", ErrorCode.INVALID_PARTITIONS),
            ("d", 0),
            ("e", ErrorCode.INVALID_PARTITIONS),
        ]


def test_topics_outlive_the_broker(start_broker: StartBroker, topic: str) -> None:
    broker: BrokerProcess = start_broker()
    with connect(broker) as connection:
        created = Administrator(connection).create(new_topic(topic, 2, configs={"retention.ms": "5"}))
    assert broker.stop() == 0
    broker.start()
    with connect(broker) as connection:
        (found,) = metadata(connection, topic).topics
        assert (found.topic_id, len(found.partitions)) == (created.topic_id, 2)
        assert Administrator(connection).own_configs(topic) == {"retention.ms": "5"}


@pytest.mark.parametrize("version", versions(19))
def test_the_longest_words_of_a_client_get_an_answer(administrator: Administrator, version: int) -> None:
    long = "x" * 32_767
    assert administrator.create(long, version).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    for configs in ({long: "1"}, {"retention.ms": long}):
        assert administrator.create(new_topic("t", configs=configs), version).error_code == ErrorCode.INVALID_CONFIG


def test_a_request_that_names_very_much_holds_nobody_up(administrator: Administrator, bystander: Bystander) -> None:
    replicas = administrator.create(new_topic("t", -1, -1, assignments={0: [0] * 50_000}))
    assert replicas.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    results = administrator.create_all([new_topic(f"t{n}") for n in range(3_000)], validate_only=True)
    assert {result.error_code for result in results} == {0}
    bystander.goes_on()
