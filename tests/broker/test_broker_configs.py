"""Configs of brokers: what DescribeConfigs shows, what can be changed while they run, and that all nodes follow.

Error codes, messages, sources and synonyms are those that Apache Kafka 4.3 answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest

from headrace.broker.configs.broker_table import BROKER_CONFIGS
from headrace.client.connection import BrokerConnection
from headrace.store.topic_configs.table import TOPIC_CONFIGS
from headrace.wire.errors import ErrorCode
from tests.broker.administrator import (
    APPEND,
    BROKER,
    DELETE,
    FROM_DEFAULT,
    FROM_SETTING,
    FROM_TOPIC,
    SET,
    SUBTRACT,
    TOPIC,
    Administrator,
    Outcome,
    new_topic,
    versions,
)
from tests.broker.peers import batch_of, connect, produce
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis

FROM_BROKER, FROM_BROKERS = 2, 3
ALL = ""
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG

Synonyms = list[tuple[str, str | None, int]]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with settings of its own."""
    started = BrokerProcess(
        tmp_path_factory.mktemp("settings") / "data",
        default_partitions=6,
        log_retention_ms=700_000,
        advertised="127.0.0.1:9",
        group_max_size=77,
        offsets_retention_ms=90_000,
    ).start()
    yield started
    started.end()


@pytest.fixture
def administrator(process: BrokerProcess) -> Iterator[Administrator]:
    with connect(process) as connection:
        found = Administrator(connection)
        yield found
        for name in ("0", ALL):
            assert found.replace(name, {}, BROKER) == (0, None)


def synonyms(administrator: Administrator, name: str, key: str, kind: int = BROKER) -> Synonyms:
    """Those of one config; none if it is not shown."""
    found = administrator.describe(name, [key], kind).configs
    return [(s.name, s.value, s.source) for config in found for s in config.synonyms]


def own(administrator: Administrator, name: str) -> dict[str, str | None]:
    """What was set for a broker or all of them."""
    source = FROM_BROKERS if name == ALL else FROM_BROKER
    configs = administrator.describe(name, resource_type=BROKER).configs
    return {config.name: config.value for config in configs if config.config_source == source}


@pytest.mark.parametrize("version", versions(32))
def test_the_broker_s_settings_are_described_under_kafka_s_names(
    administrator: Administrator, process: BrokerProcess, version: int
) -> None:
    result = administrator.describe("0", resource_type=BROKER, version=version)
    assert result.error_code == 0
    configs = {config.name: config for config in result.configs}
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("6", FROM_SETTING, True)
    assert [(s.value, s.source) for s in partitions.synonyms] == [("6", FROM_SETTING), ("1", FROM_DEFAULT)]
    assert (configs["auto.create.topics.enable"].value, configs["node.id"].value) == ("true", "0")
    assert configs["message.max.bytes"].config_source == FROM_DEFAULT
    assert not configs["message.max.bytes"].read_only
    assert configs["listeners"].value == f"PLAINTEXT://127.0.0.1:{process.port}"
    assert configs["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9"
    shown = {name: configs[name].value for name in configs if name.startswith(("group.", "offsets.", "headrace.off"))}
    assert shown == {
        "group.initial.rebalance.delay.ms": "3000",
        "group.max.session.timeout.ms": "1800000",
        "group.max.size": "77",
        "group.min.session.timeout.ms": "6000",
        "offsets.retention.check.interval.ms": "600000",
        "offsets.retention.minutes": "2",
        "headrace.offsets.retention.ms": "90000",
    }


def test_each_default_of_a_topic_config_can_be_changed_while_brokers_run() -> None:
    for row in TOPIC_CONFIGS.values():
        if row.synonym:
            assert not BROKER_CONFIGS[row.synonym].is_read_only
            assert BROKER_CONFIGS[row.synonym].check(row.default) == row.default


@pytest.mark.parametrize("version", versions(44))
def test_a_value_is_set_for_one_broker_and_for_all_and_deleted_again(
    administrator: Administrator, version: int
) -> None:
    key = "log.retention.ms"
    started = [(key, "700000", FROM_SETTING), (key, "604800000", FROM_DEFAULT)]
    assert synonyms(administrator, "0", key) == started
    assert administrator.alter(ALL, [(key, SET, " 5000 ")], BROKER, version, validate_only=True) == (0, None)
    assert own(administrator, ALL) == {}
    assert administrator.alter(ALL, [(key, SET, " 5000 ")], BROKER, version) == (0, None)
    assert administrator.alter("0", [(key, SET, "6000")], BROKER, version) == (0, None)
    all_layers = [(key, "6000", FROM_BROKER), (key, "5000", FROM_BROKERS), *started]
    assert synonyms(administrator, "0", key) == all_layers
    assert synonyms(administrator, ALL, key) == [(key, "5000", FROM_BROKERS)]
    assert administrator.alter("0", [(key, DELETE, None)], BROKER, version) == (0, None)
    assert synonyms(administrator, "0", key) == all_layers[1:]
    assert administrator.alter(ALL, [(key, DELETE, None)], BROKER, version) == (0, None)
    assert synonyms(administrator, "0", key) == started


@pytest.mark.parametrize("version", versions(33))
def test_all_values_are_replaced_at_once(administrator: Administrator, version: int) -> None:
    for name in ("0", ALL):
        first: dict[str, str | None] = {"message.max.bytes": "2000", "log.retention.bytes": "9"}
        assert administrator.replace(name, first, BROKER, version) == (0, None)
        assert own(administrator, name) == first
        assert administrator.replace(name, {"message.max.bytes": "3000"}, BROKER, version) == (0, None)
        assert own(administrator, name) == {"message.max.bytes": "3000"}
        assert administrator.replace(name, {}, BROKER, version) == (0, None)
        assert own(administrator, name) == {}


@pytest.mark.parametrize("name", ["0", ALL])
@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([("num.partitions", SET, "3")], INVALID_REQUEST, "Cannot update these configs dynamically: [num.partitions]"),
        ([("num.partitions", SET, "3"), ("log.retention.ms", SET, "1"), ("auto.create.topics.enable", SET, "false")],
         INVALID_REQUEST, "Cannot update these configs dynamically: [num.partitions, auto.create.topics.enable]"),
        ([("num.partitions", SET, "3")], INVALID_REQUEST, "Start the broker with another default_partitions"),
        ([("group.max.size", SET, "3")], INVALID_REQUEST, "Start the broker with another group_max_size"),
        ([("advertised.listeners", SET, "x")], INVALID_REQUEST, "dynamically: [advertised.listeners]"),
        ([("headrace.topics.max", SET, "3")], INVALID_REQUEST, "dynamically: [headrace.topics.max]"),
        ([("no.such", SET, "3")], INVALID_REQUEST, "dynamically: [no.such]"),
        ([("log.retention.ms", SET, "abc")], INVALID_REQUEST,
         "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        ([("log.retention.ms", SET, "0")], INVALID_REQUEST, "log.retention.ms must be unlimited (-1)"),
        ([("message.max.bytes", SET, "-1")], INVALID_REQUEST,
         "Invalid value -1 for configuration message.max.bytes: Value must be at least 0"),
        ([("message.max.bytes", SET, None)], INVALID_REQUEST, "Null value not supported for : message.max.bytes"),
        ([("message.max.bytes", APPEND, "1")], INVALID_CONFIG,
         "Config value append is not allowed for config key: message.max.bytes"),
        ([("message.max.bytes", SUBTRACT, "1")], INVALID_CONFIG,
         "Config value subtract is not allowed for config key: message.max.bytes"),
        ([("no.such", APPEND, "1")], INVALID_CONFIG, "Unknown config name: no.such"),
        ([("log.cleanup.policy", APPEND, "sweep")], INVALID_REQUEST, "String must be one of: compact, delete"),
        ([("max.connections", SET, "1"), ("max.connections", SET, "2")], INVALID_REQUEST,
         "Error due to duplicate config keys"),
        ([("max.connections", 9, "1")], INVALID_REQUEST, "Unknown operations type 9"),
    ],
)  # fmt: skip
def test_what_kafka_refuses_is_refused_and_nothing_of_it_set(
    administrator: Administrator, name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, words: str
) -> None:
    found, message = administrator.alter(name, changes, BROKER)
    assert found == code
    assert words in (message or "")
    assert own(administrator, name) == {}


def test_what_has_nothing_set_can_be_deleted(administrator: Administrator) -> None:
    for key in ("num.partitions", "no.such", "log.retention.ms"):
        assert administrator.alter(ALL, [(key, DELETE, None)], BROKER) == (0, None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("9", "Unexpected broker id, expected 0, but received 9"),
        ("x", "Node id must be an integer, but it is: x"),
        ("-1", "Node id must be an integer, but it is: -1"),
    ],
)
def test_a_broker_changes_its_own_configs_alone(administrator: Administrator, name: str, words: str) -> None:
    refused = (INVALID_REQUEST, words)
    assert administrator.alter(name, [("log.retention.ms", SET, "1")], BROKER) == refused
    assert administrator.replace(name, {"log.retention.ms": "1"}, BROKER) == refused


def test_what_tools_set_is_accepted_and_shown_once_it_is(administrator: Administrator) -> None:
    rate, per_broker = "leader.replication.throttled.rate", "sasl.kerberos.min.time.before.relogin"
    assert synonyms(administrator, "0", rate) == []
    assert administrator.alter(ALL, [(rate, SET, "77")], BROKER) == (0, None)
    assert synonyms(administrator, "0", rate) == [(rate, "77", FROM_BROKERS)]
    assert administrator.alter("0", [(per_broker, SET, "58000"), ("background.threads", SET, "9")], BROKER) == (0, None)
    code, message = administrator.alter(ALL, [(per_broker, SET, "58000")], BROKER)
    assert code == INVALID_REQUEST
    assert "broker id must be specified" in (message or "")


def test_lists_of_a_broker_are_made_longer_and_shorter(administrator: Administrator) -> None:
    for operation, value, policy in ((APPEND, "compact", "delete,compact"), (SUBTRACT, "delete", "compact")):
        assert administrator.alter(ALL, [("log.cleanup.policy", operation, value)], BROKER) == (0, None)
        assert own(administrator, ALL) == {"log.cleanup.policy": policy}


def test_a_topic_follows_its_broker_unless_it_says_otherwise(administrator: Administrator, topic: str) -> None:
    key, synonym = "retention.ms", "log.retention.ms"
    stream = f"{topic}-stream"
    assert administrator.create(topic).error_code == 0
    assert administrator.create(new_topic(stream, configs={"headrace.format": "stream"})).error_code == 0
    started = [(synonym, "700000", FROM_SETTING), (synonym, "604800000", FROM_DEFAULT)]
    assert administrator.alter(ALL, [(synonym, SET, "5000"), ("log.cleanup.policy", SET, "compact")], BROKER)[0] == 0
    assert administrator.alter("0", [(synonym, SET, "6000")], BROKER) == (0, None)
    layers = [(synonym, "6000", FROM_BROKER), (synonym, "5000", FROM_BROKERS), *started]
    assert synonyms(administrator, topic, key, TOPIC) == layers
    assert administrator.config(topic, "cleanup.policy").value == "compact"
    assert administrator.config(stream, "cleanup.policy").value == "delete"
    assert administrator.alter(topic, [(key, SET, "1")]) == (0, None)
    assert synonyms(administrator, topic, key, TOPIC) == [(key, "1", FROM_TOPIC), *layers]
    created = administrator.create(f"{topic}-2")
    assert {c.name: c.config_source for c in created.configs or []}[key] == FROM_BROKER


def test_the_largest_batch_and_keys_follow_at_once(administrator: Administrator, topic: str) -> None:
    assert administrator.create(topic).error_code == 0
    batch = batch_of(b"x" * 500)

    def code() -> int:
        return produce(administrator.connection, topic, {0: batch})[0].error_code

    for name in (ALL, "0"):
        assert code() == 0
        assert administrator.alter(name, [("message.max.bytes", SET, "100")], BROKER) == (0, None)
        assert code() == ErrorCode.MESSAGE_TOO_LARGE
        assert administrator.alter(name, [("message.max.bytes", DELETE, None)], BROKER) == (0, None)
    assert administrator.alter(ALL, [("log.cleanup.policy", SET, "compact")], BROKER) == (0, None)
    assert code() == ErrorCode.INVALID_RECORD


def test_connections_are_bounded_while_the_broker_runs(administrator: Administrator, process: BrokerProcess) -> None:
    assert administrator.alter(ALL, [("max.connections", SET, "1")], BROKER) == (0, None)

    def is_let_in() -> bool:
        try:
            with connect(process, timeout_s=5) as other:
                return Administrator(other).describe("0", resource_type=BROKER).error_code == 0
        except (OSError, EOFError):
            return False

    assert not is_let_in()
    assert administrator.alter(ALL, [("max.connections", DELETE, None)], BROKER) == (0, None)
    wait_until(is_let_in, "the limit was not taken back")


def test_what_was_set_outlives_a_restart_and_every_node_follows(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> None:
    redis = start_redis()
    first, second = (start_broker(redis=redis.url, node_id=number) for number in (0, 1))
    key = "message.max.bytes"
    with connect(first) as one, connect(second) as two:
        here, there = Administrator(one), Administrator(two)
        assert here.create(topic).error_code == 0
        assert here.alter("0", [(key, SET, "300")], BROKER) == (0, None)
        assert there.alter(ALL, [(key, SET, "100")], BROKER) == (0, None)
        assert synonyms(here, "0", key)[:2] == [(key, "300", FROM_BROKER), (key, "100", FROM_BROKERS)]
        assert synonyms(there, "1", key)[0] == (key, "100", FROM_BROKERS)
        assert here.alter("0", [(key, DELETE, None)], BROKER) == (0, None)
        wait_until(lambda: all(_refuses_large(c, topic) for c in (one, two)), "a node did not follow")
    first.end()
    with connect(start_broker(redis=redis.url, node_id=2)) as third:
        assert synonyms(Administrator(third), "2", key)[0] == (key, "100", FROM_BROKERS)


def _refuses_large(connection: BrokerConnection, topic: str) -> bool:
    """Whether a node takes no large batch; not to lead the partition refuses it too, and proves nothing."""
    code = produce(connection, topic, {0: batch_of(b"x" * 200)})[0].error_code
    return code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_changes_of_several_nodes_at_the_same_moment_are_all_kept(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    redis = start_redis()
    brokers = [start_broker(redis=redis.url, node_id=number) for number in (0, 1)]
    names = ["log.retention.ms", "log.retention.bytes", "message.max.bytes", "log.roll.ms"]
    outcomes: list[Outcome] = []

    def change(name: str, broker: BrokerProcess) -> None:
        with connect(broker) as connection:
            changing = Administrator(connection)
            outcomes.extend(changing.alter(ALL, [(name, SET, str(n))], BROKER) for n in range(1, 16))

    threads = [Thread(target=change, args=(name, brokers[at % 2])) for at, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [(0, None)] * 60
    for broker in brokers:
        with connect(broker) as connection:
            assert own(Administrator(connection), ALL) == dict.fromkeys(names, "15")
