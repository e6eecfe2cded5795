"""Options of the Spark source: understood, or refused in one sentence that names them."""

from __future__ import annotations

import pytest

from headrace.client.sasl import Sasl
from headrace.lake.connecting import OptionError
from headrace.lake.source.options import Bound, parse_options
from headrace.wire.special_times import EARLIEST, LATEST

NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def test_all_options_are_understood_in_any_case() -> None:
    parsed = parse_options(
        {
            "KAFKA.bootstrap.servers": "a:1,b:2",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.request.timeout.ms": "1500",
            "Subscribe": "b, a",
            "startingoffsets": '{"a": {"0": -2, "1": 7}}',
            "endingOffsets": "latest",
            "minPartitions": "8",
            "maxRecordsPerPartition": "1000",
            "failOnDataLoss": "False",
            "includeHeaders": "true",
        }
    )
    assert parsed.connecting.bootstrap == "a:1,b:2"
    assert parsed.connecting.timeout_s == 1.5
    assert not parsed.connecting.read_committed
    assert parsed.subscribe == ["a", "b"]
    assert parsed.starting == Bound("offset", None, {("a", 0): EARLIEST, ("a", 1): 7})
    assert parsed.ending == Bound("offset", LATEST)
    assert (parsed.min_partitions, parsed.max_records_per_partition) == (8, 1000)
    assert not parsed.fail_on_data_loss
    assert parsed.include_headers


def test_a_timestamp_goes_before_offsets_by_timestamp_and_those_before_offsets() -> None:
    given = NEEDED | {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 5}}'}
    assert parse_options(given).starting == Bound("timestamp", None, {("orders", 0): 5})
    given["startingTimestamp"] = "6"
    given["startingOffsetsByTimestampStrategy"] = "latest"
    assert parse_options(given).starting == Bound("timestamp", 6, latest_if_none=True)
    assert parse_options(NEEDED | {"endingTimestamp": "7"}).ending == Bound("timestamp", 7, latest_if_none=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"subscribe": None}, r"^Give one of subscribe, subscribePattern, assign\.$"),
        ({"assign": '{"a": [0]}'}, "not subscribe and assign"),
        ({"subscribe": " , "}, "'subscribe' has no topic"),
        ({"subscribe": None, "subscribePattern": "("}, "'subscribePattern'.*not a regular expression"),
        ({"subscribe": None, "assign": "orders"}, "'assign' must be partitions by topic, such as"),
        ({"subscribe": None, "assign": "{}"}, "'assign' has no partition"),
        ({"kafka.bootstrap.servers": None}, "'kafka.bootstrap.servers' is missing"),
        ({"kafka.bootstrap.servers": "a:x"}, "'kafka.bootstrap.servers': 'a:x' is not a broker address"),
        ({"kafka.security.protocol": "SASL_SSL"}, "it must be PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}, "is 'GSSAPI'; it must be PLAIN or"),
        (
            {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"},
            "it must be a line such as org.apache.kafka.common.security.plain.PlainLoginModule required username=",
        ),
        ({"kafka.security.protocol": "KERBEROS"}, "it must be PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL"),
        ({"kafka.isolation.level": "maybe"}, "'read_committed' or 'read_uncommitted'"),
        ({"kafka.request.timeout.ms": "soon"}, "a number of milliseconds"),
        ({"kafka.ssl.truststore.type": "JKS"}, "only PEM files"),
        ({"kafka.group.id": "g"}, "no option 'kafka.group.id'"),
        ({"startingOfsets": "earliest"}, "no option 'startingOfsets'; there are .*startingOffsets"),
        ({"startingOffsets": "first"}, "'startingOffsets' is 'first'; it must be earliest, latest or JSON"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "has -3 for orders-0"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "has -2 for orders-0"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "a whole number above 0"),
        ({"minPartitions": "many"}, "a whole number above 0"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
    ],
)
def test_a_wrong_option_is_refused_by_name(change: dict[str, str | None], sentence: str) -> None:
    given = {name: value for name, value in (NEEDED | change).items() if value is not None}
    with pytest.raises(OptionError, match=sentence) as refused:
        parse_options(given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [("maxOffsetsPerTrigger", "5"), ("startingOffsets", "latest"), ("endingOffsets", "earliest")],
)
def test_a_batch_query_refuses_what_makes_no_sense_for_it(option: str, value: str) -> None:
    with pytest.raises(OptionError, match=option):
        parse_options(NEEDED | {option: value}).for_batch()


@pytest.mark.parametrize(
    ("option", "value"),
    [("endingOffsets", "latest"), ("endingTimestamp", "5"), ("endingOffsetsByTimestamp", '{"orders": {"0": 5}}')],
)
def test_a_streaming_query_has_no_end(option: str, value: str) -> None:
    with pytest.raises(OptionError, match="has no end"):
        parse_options(NEEDED | {option: value}).for_stream()


def test_sasl_takes_user_and_password_from_the_line_of_kafkas_own_client() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = {
        "kafka.bootstrap.servers": "broker:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": rf'{module} required username="ann" password="a \"b\"; c";',
        "subscribe": "orders",
    }
    connecting = parse_options(options).connecting
    assert connecting.security.tls
    assert connecting.security.sasl == Sasl("SCRAM-SHA-512", "ann", 'a "b"; c')
    assert "a " not in repr(connecting)
    assert 'b"' not in repr(connecting.security)
