"""The table of topic configs: what is accepted, what is refused with which words, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.configs.broker_table import OPTION_OF, as_started
from headrace.broker.configs.topic_page import render_docs
from headrace.broker.configs.topics import check_new_configs
from headrace.broker.options import BrokerOptions
from headrace.store.topic_configs.policy import policy_of
from headrace.store.topic_configs.table import TOPIC_CONFIGS
from headrace.wire.errors import ErrorCode, KafkaError

OPTIONS = BrokerOptions()
KAFKA_4_CONFIGS = [
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level",
    "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas",
    "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate",
    "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes",
    "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable",
]  # fmt: skip


def test_the_page_of_topic_configs_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "topic-configs.md"
    assert page.read_text() == render_docs(), "run: make docs"


def test_each_config_of_kafka_is_accepted_with_its_default() -> None:
    defaults = {name: TOPIC_CONFIGS[name].default for name in KAFKA_4_CONFIGS}
    assert check_new_configs(defaults) == defaults


def test_each_default_that_is_a_setting_is_that_setting_s_default() -> None:
    settings = {row.name: OPTION_OF[row.synonym] for row in TOPIC_CONFIGS.values() if row.synonym in OPTION_OF}
    assert settings.keys() == {"max.message.bytes", "retention.ms", "retention.bytes", "min.insync.replicas"}
    for name, option in settings.items():
        assert TOPIC_CONFIGS[name].default == str(getattr(OPTIONS, option))


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("retention.ms", " 100 ", "100"),
        ("retention.ms", "+7", "7"),
        ("retention.bytes", "-9223372036854775808", "-9223372036854775808"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", "", ""),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "1e-2", "0.01"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("compression.gzip.level", "-1", "-1"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("follower.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"),
        ("min.insync.replicas", "3", "3"),
    ],
)
def test_a_value_is_stored_in_one_form(name: str, value: str, stored: str) -> None:
    assert check_new_configs({name: value}) == {name: stored}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("no.such.config", "1", "Unknown topic config name: no.such.config"),
        ("message.format.version", "3.0", "Unknown topic config name: message.format.version"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "\u0663", "Invalid value \u0663 for configuration retention.ms: Not a number of type LONG"),
        ("retention.bytes", "9223372036854775808", "Not a number of type LONG"),
        ("max.message.bytes", "2147483648", "Not a number of type INT"),
        ("max.message.bytes", "", "Not a number of type INT"),
        ("segment.bytes", "1048575", "Value must be at least 1048576"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "NaN", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1e999", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("cleanup.policy", "compact,sweep",
         "Invalid value sweep for configuration cleanup.policy: String must be one of: compact, delete"),
        ("cleanup.policy", "compact,", "String must be one of: compact, delete"),
        ("compression.type", "none",
         "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("leader.replication.throttled.replicas", "0-1", "must be the literal '*' or a list of replicas"),
        ("headrace.format", "streams", "String must be one of: log, stream"),
        ("headrace.stream.sequence.bits", "-1", "Value must be at least 0"),
        ("headrace.stream.foreign", "xml", "String must be one of: json, skip"),
        ("headrace.topic.id", "top_1", "headrace.topic.id is read-only"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_in_kafka_s_words(name: str, value: str, words: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_new_configs({name: value})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert words in str(refused.value)


def test_a_shortest_compaction_lag_above_the_longest_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"min.compaction.lag.ms \(10\) > max.compaction.lag.ms \(9\)"):
        check_new_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


def test_a_policy_without_configs_is_the_broker_s_settings() -> None:
    policy = policy_of(
        {}, as_started(BrokerOptions(message_max_bytes=7, log_retention_ms=8, log_retention_bytes=9)).values
    )
    assert (policy.max_message_bytes, policy.retention_ms, policy.retention_bytes) == (7, 8, 9)
    assert policy.deletes
    assert not policy.compacts
    assert policy.compression is None


@pytest.mark.parametrize(
    ("cleanup", "compacts", "deletes", "allows_delete_records"),
    [
        ("delete", False, True, True),
        ("compact", True, False, False),
        ("compact,delete", True, True, True),
        ("", False, False, False),
    ],
)
def test_what_a_cleanup_policy_does(cleanup: str, compacts: bool, deletes: bool, allows_delete_records: bool) -> None:
    policy = policy_of({"cleanup.policy": cleanup})
    assert (policy.compacts, policy.deletes) == (compacts, deletes)
    assert policy.allows_delete_records is allows_delete_records


def test_stored_configs_of_another_version_do_no_harm() -> None:
    stored = {
        "from.the.future": "1",
        "retention.ms": "P7D",
        "retention.bytes": "",
        "max.message.bytes": "1" * 30,
        "cleanup.policy": "archive",
        "compression.type": "brotli",
        "message.timestamp.type": "Never",
        "message.timestamp.after.max.ms": "-5",
    }
    assert policy_of(stored) == policy_of({})
