"""Groups of types that only other brokers have, from the bytes of their answers.

`groups_of_kafka.json` is what Kafka 4.3.1 answered: group -> API and version -> body. `billing` had two consumers of
librdkafka with group.protocol=consumer, `workers` one kafka-console-share-consumer, `word-count-words` two threads of
Kafka Streams with group.protocol=streams.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

import pytest

from headrace.client import Cluster, Groups
from headrace.client.connection import BrokerConnection
from headrace.client.group_types import CONSUMER, SHARE, STREAMS, GroupMember, GroupPosition
from headrace.wire import codec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.schema import Payload

R = TypeVar("R", bound=Payload)
RECORDED: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("groups_of_kafka.json").read_text())


class RecordedConnection(BrokerConnection):
    """A group's coordinator as it was recorded."""

    def __init__(self, group: str) -> None:
        self._answers = RECORDED[group]

    def send_for(self, request: Payload, response: type[R], version: int | None = None, extra_wait_s: float = 0.0) -> R:
        """What was answered to a request for this API."""
        [(name, body)] = [(n, b) for n, b in self._answers.items() if n.split(" ")[0] == request.api.name]
        return codec.decode(response, int(name.split(" v")[1]), bytes.fromhex(body))[0]


class RecordedCluster(Cluster):
    def coordinator(self, key: str, kind: int = 0) -> BrokerConnection:
        return RecordedConnection(key)


@pytest.fixture
def groups() -> Groups:
    return Groups(RecordedCluster("127.0.0.1:1"))


def test_a_consumer_group_shows_its_members_and_what_they_read(groups: Groups) -> None:
    info = groups.describe_group("billing")
    assert (info.type, info.state, info.protocol_type, info.protocol) == (CONSUMER, "Stable", "consumer", "uniform")
    assert info.members == [
        GroupMember("7KQQ8ampTSSnmKHMoAtdDA", None, "c0", "/127.0.0.1", {"orders": [2]}),
        GroupMember("x60Om6F8TDWOhCu2Quiasw", None, "c1", "/127.0.0.1", {"orders": [0, 1]}),
    ]


def test_a_share_group_shows_its_members_and_the_lag_that_its_broker_counts(groups: Groups) -> None:
    info = groups.describe_group("workers")
    assert (info.type, info.state, info.protocol) == (SHARE, "Stable", "simple")
    assert [(one.client_id, one.assigned) for one in info.members] == [
        ("console-share-consumer", {"orders": [0, 1, 2]})
    ]
    assert groups.positions("workers", "Share") == {("orders", n): GroupPosition(160, lag=0) for n in range(3)}


def test_a_streams_group_shows_what_its_tasks_read(groups: Groups) -> None:
    info = groups.describe_group("word-count-words")
    assert (info.type, info.state) == (STREAMS, "Stable")
    own = "word-count-words-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"
    assert [one.assigned for one in info.members] == [{own: [0, 2], "words": [1]}, {own: [1], "words": [0, 2]}]


def test_a_group_of_no_type_is_missing(groups: Groups) -> None:
    with pytest.raises(KafkaError, match="nobody not found") as raised:
        groups.describe_group("nobody")
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
