"""What /metrics says is what clients did."""

from __future__ import annotations

import http.client
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.broker.metrics.collect import NamedTopics
from headrace.broker.metrics.page import is_local_name
from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.conftest import StartBroker
from tests.metrics.test_text import parsed

RECORDS, READ = 500, 200


def scrape(port: int, token: str | None = None, accept: str = "*/*") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        given = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/metrics", headers={"Accept": accept, **given})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def value(port: int, name: str, **labels: str) -> float | None:
    status, text = scrape(port)
    assert status == 200
    return parsed(text).get(name, {}).get(tuple(sorted({"node": "0", **labels}.items())))


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for number in range(count):
        producer.produce(topic, f"value {number}".encode(), partition=0)
    assert producer.flush(30) == 0


def consume(broker: BrokerProcess, topic: str, group: str, count: int) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    seen = 0
    while seen < count:
        for message in consumer.consume(count - seen, 1.0):
            assert message.error() is None
            seen += 1
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("kind", ["log", "stream"])
def test_records_bytes_requests_and_lag_are_counted(kind: str, start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker(http_port=port, group_initial_rebalance_delay_ms=0, metrics_interval_ms=200)
    topic, group = f"{kind}-topic", f"{kind}-group"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1, config={"headrace.format": kind})])[topic].result(30)
    produce(broker, topic, RECORDS)
    consume(broker, topic, group, READ)
    where = {"organisation": "default", "topic": topic}
    assert value(port, "headrace_topic_records_in_total", **where) == RECORDS
    assert (value(port, "headrace_topic_bytes_in_total", **where) or 0) > RECORDS * len("value 0")
    assert (value(port, "headrace_topic_bytes_out_total", **where) or 0) > 0
    assert (value(port, "headrace_requests_total", api="Produce") or 0) >= 1
    lag = {**where, "group": group}
    wait_until(lambda: value(port, "headrace_group_lag_records", **lag) == RECORDS - READ, "lag is not as it should be")
    assert (value(port, "headrace_group_lag_seconds", **lag) or 0) > 0
    empty = {"organisation": "default", "state": "Empty"}
    wait_until(lambda: value(port, "headrace_groups", **empty) == 1, "the group is not empty")
    assert value(port, "headrace_group_generation", organisation="default", group=group) == 2


def test_errors_are_counted_by_their_names(start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker(http_port=port, auto_create_topics=False)
    admin = AdminClient({"bootstrap.servers": broker.address})
    with pytest.raises(confluent_kafka.KafkaException):
        admin.delete_topics(["missing"])["missing"].result(30)
    error = {"api": "DeleteTopics", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert value(port, "headrace_request_errors_total", **error) == 1


def test_beyond_the_limit_topics_are_counted_together(start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker(http_port=port, metrics_names_max=1, metrics_partitions=True)
    produce(broker, "many", 50)
    produce(broker, "few", 5)
    assert value(port, "headrace_topic_records_in_total", organisation="default", topic="many") == 50
    assert value(port, "headrace_topic_records_in_total", organisation="_others", topic="_others") == 5
    end = {"organisation": "default", "topic": "few", "partition": "0"}
    assert value(port, "headrace_partition_end_offset", **end) == 5


def test_away_from_loopback_metrics_need_the_token(start_broker: StartBroker, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a secret\n")
    port = free_port()
    start_broker(http_host="0.0.0.0", http_port=port, metrics_token_file=token)
    assert scrape(port)[0] == 401
    assert scrape(port, "a guess")[0] == 401
    assert scrape(port, "a secret")[0] == 200


def test_away_from_loopback_without_a_token_there_are_no_metrics(start_broker: StartBroker) -> None:
    port = free_port()
    start_broker(http_host="0.0.0.0", http_port=port)
    status, text = scrape(port)
    assert status == 403
    assert "metrics_token_file" in text


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:9080", True),
        ("127.8.9.1:80", True),
        ("LOCALHOST:9080", True),
        ("[::1]:9080", True),
        ("[::1]", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:9080", False),
        ("localhost.evil.example", False),
        ("10.0.0.1:9080", False),
        ("", False),
        ("[::2]:1", False),
    ],
)
def test_a_host_header_names_this_machine_or_not(host: str, is_local: bool) -> None:
    assert is_local_name(host) == is_local


def test_another_site_does_not_read_metrics_by_a_name_that_leads_here(start_broker: StartBroker) -> None:
    port = free_port()
    start_broker(http_port=port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Host": "evil.example"})
    assert connection.getresponse().status == 403
    connection.close()


def test_a_topic_that_has_samples_keeps_them_when_another_outgrows_it() -> None:
    named = NamedTopics()
    first, second = ("default", "first"), ("default", "second")

    def shown(values: dict[tuple[str, str], float]) -> dict[tuple[str, ...], object]:
        return {one.labels: one.value for one in named.samples("headrace_topic_bytes_in_total", values, 1)}

    assert shown({first: 5, second: 1}) == {first: 5, ("_others", "_others"): 1}
    assert shown({first: 5, second: 9}) == {first: 5, ("_others", "_others"): 9}
    named.forget_but({second})
    assert shown({second: 9}) == {second: 9}
