"""Fetch sessions (KIP-227) over the raw protocol: what is left out, what comes back, and who gets a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.broker.peers import batch_of, connect, create_topic, produce, values_of
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker

NEW, CLOSE = 0, -1
LONG_MS = 30_000


class SessionClient:
    """Keeps id and epoch of a session, as a consumer does."""

    def __init__(self, connection: BrokerConnection, topic: str, version: int = 12) -> None:
        self.connection, self.topic, self.version = connection, topic, version
        self.id, self.epoch = 0, NEW

    def send(
        self, offsets: Mapping[int, int], forget: tuple[int, ...] = (), max_bytes: int = 50 << 20
    ) -> FetchResponse:
        wanted = [FetchPartition(index, fetch_offset=at, partition_max_bytes=1 << 20) for index, at in offsets.items()]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=self.topic, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic=self.topic, partitions=list(forget))] if forget else [],
        )
        answer = self.connection.send_for(request, FetchResponse, self.version)
        if answer.error_code == 0:
            self.id = answer.session_id
            self.epoch += 1
        return answer

    def fetch(
        self, offsets: Mapping[int, int] | None = None, max_bytes: int = 50 << 20
    ) -> dict[int, list[bytes | None]]:
        """Partition -> values, for the partitions that the answer shows."""
        answer = self.send(offsets or {}, max_bytes=max_bytes)
        assert answer.error_code == 0
        return {data.partition_index: values_of(data) for topic in answer.responses for data in topic.partitions}


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(broker) as found:
        yield found


@pytest.fixture
def session(connection: BrokerConnection, topic: str) -> SessionClient:
    """A session over three empty partitions."""
    create_topic(connection, topic, partitions=3)
    client = SessionClient(connection, topic)
    assert client.fetch({0: 0, 1: 0, 2: 0}) == {0: [], 1: [], 2: []}
    assert client.id > 0
    return client


def test_an_incremental_answer_shows_only_what_is_new(session: SessionClient) -> None:
    assert session.fetch() == {}
    produce(session.connection, session.topic, {1: batch_of(b"a")})
    assert session.fetch() == {1: [b"a"]}
    # The client did not move on: it asked for the same offset again and gets the same record.
    assert session.fetch() == {1: [b"a"]}
    assert session.fetch({1: 1}) == {}


def test_a_partition_can_be_forgotten_and_added_again(session: SessionClient) -> None:
    produce(session.connection, session.topic, {0: batch_of(b"a"), 1: batch_of(b"b")})
    answer = session.send({}, forget=(1,))
    assert [data.partition_index for topic in answer.responses for data in topic.partitions] == [0]
    assert session.fetch({0: 1}) == {}
    assert session.fetch({1: 0}) == {1: [b"b"]}


def test_a_partition_may_be_forgotten_while_a_fetch_of_another_connection_waits_for_it(
    session: SessionClient, broker: BrokerProcess
) -> None:
    wanted = FetchRequest(
        max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1 << 20, session_id=session.id, session_epoch=session.epoch
    )
    session.connection.ask(wanted, 12)
    with connect(broker) as other:
        again = SessionClient(other, session.topic)
        again.id, again.epoch = session.id, session.epoch + 1
        wait_until(lambda: again.send({}, forget=(1,)).error_code == 0, "the first is not there yet")
        produce(other, session.topic, {1: batch_of(b"a")})
    answer = session.connection.receive()
    assert isinstance(answer, FetchResponse)
    assert values_of(answer.responses[0].partitions[0]) == [b"a"]


def test_an_error_is_shown_again_and_again(session: SessionClient) -> None:
    for _ in range(2):
        answer = session.send({0: 99})
        assert [data.error_code for topic in answer.responses for data in topic.partitions] == [1]


def test_a_session_waits_for_news(session: SessionClient, broker: BrokerProcess) -> None:
    session.connection.ask(
        FetchRequest(max_wait_ms=30_000, min_bytes=1, session_id=session.id, session_epoch=session.epoch), 12
    )
    with connect(broker) as other:
        produce(other, session.topic, {2: batch_of(b"news")})
    answer = session.connection.receive()
    assert isinstance(answer, FetchResponse)
    assert [(d.partition_index, values_of(d)) for t in answer.responses for d in t.partitions] == [(2, [b"news"])]


def test_a_wrong_epoch_is_refused_and_the_session_goes_on(session: SessionClient) -> None:
    session.epoch += 1
    assert session.send({}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch -= 1
    assert session.fetch() == {}


def test_an_unknown_session_is_refused(session: SessionClient) -> None:
    session.id += 1
    assert session.send({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_closed_session_is_unknown(session: SessionClient) -> None:
    epoch, session_id = session.epoch, session.id
    session.epoch = CLOSE
    answer = session.send({0: 0})
    assert (answer.error_code, answer.session_id) == (0, 0)
    session.epoch, session.id = epoch, session_id
    assert session.send({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_begins_anew_replaces_the_old_one(session: SessionClient) -> None:
    old = session.id
    session.epoch = NEW
    session.fetch({0: 0})
    assert session.id not in (0, old)
    session.id, session.epoch = old, 1
    assert session.send({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_beyond_the_limit_the_session_that_was_used_longest_ago_goes(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(fetch_sessions_max=2)
    with connect(broker) as connection:
        create_topic(connection, topic)
        first, second, third = (SessionClient(connection, topic) for _ in range(3))
        first.fetch({0: 0})
        second.fetch({0: 0})
        first.fetch()
        third.fetch({0: 0})
        assert first.fetch() == {}
        assert third.fetch() == {}
        assert second.send({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_room_for_sessions_every_answer_is_a_full_one(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(fetch_sessions_max=0)
    with connect(broker) as connection:
        create_topic(connection, topic)
        client = SessionClient(connection, topic)
        assert client.fetch({0: 0}) == {0: []}
        assert client.id == 0


def test_partitions_that_were_served_let_the_others_go_first(session: SessionClient) -> None:
    """Each answer has room for one batch: over the rounds everybody gets the same."""
    for _ in range(4):
        produce(session.connection, session.topic, {index: batch_of(bytes(1_000)) for index in range(3)})
    positions = {0: 0, 1: 0, 2: 0}
    turns: Counter[int] = Counter()
    for _ in range(12):
        found = session.fetch(positions, max_bytes=1)
        served = [index for index, values in found.items() if values]
        assert len(served) == 1
        turns[served[0]] += 1
        positions = {served[0]: turns[served[0]]}
    assert turns == {0: 4, 1: 4, 2: 4}
