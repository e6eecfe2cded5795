"""What a client sees of its requests when its broker stops: answers in the order of the requests, or none."""

from __future__ import annotations

from signal import SIGTERM

import pytest

from headrace.client.errors import BrokerUnreachable
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.peers import FETCH_BY_NAME, connect, create_topic, fetch_request, metadata
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

LONG_POLL = {"max_wait_ms": 60_000, "min_bytes": 1}


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker()


def test_nothing_is_answered_behind_a_long_poll_that_is_dropped(broker: BrokerProcess) -> None:
    with connect(broker) as connection, connect(broker) as other:
        create_topic(connection, "orders")
        connection.ask(fetch_request("orders", {0: 0}, **LONG_POLL), FETCH_BY_NAME)
        connection.ask(MetadataRequest(topics=None), 12)
        metadata(other, "orders")  # by its answer, both have arrived
        broker.send_signal(SIGTERM)
        with pytest.raises(BrokerUnreachable):
            connection.read_frame()
    assert broker.wait() == 0


def test_what_came_before_a_long_poll_is_answered(broker: BrokerProcess) -> None:
    with connect(broker) as connection, connect(broker) as other:
        create_topic(connection, "orders")
        connection.ask(MetadataRequest(topics=None), 12)
        connection.ask(fetch_request("orders", {0: 0}, **LONG_POLL), FETCH_BY_NAME)
        connection.ask(fetch_request("orders", {0: 0}), FETCH_BY_NAME)
        metadata(other, "orders")
        broker.send_signal(SIGTERM)
        assert isinstance(connection.receive(), MetadataResponse)
        with pytest.raises(BrokerUnreachable):
            connection.read_frame()
    assert broker.wait() == 0
