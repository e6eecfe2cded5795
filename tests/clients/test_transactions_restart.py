"""A broker with its embedded server is stopped in order and started again: transactional producers do not notice.

Open transactions go on, and nobody is fenced. aiokafka and kafka-python could not continue after a fence.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaProducer

from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.nodes_process import ports_in_a_row
from tests.stores import of_one_server

_WAIT_S = 30.0
_TOPIC = "ledger"
pytestmark = of_one_server


class Mover(Protocol):
    """A transactional producer; every step returns once it is acknowledged."""

    def begin(self) -> None: ...
    def send(self, value: bytes) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Librdkafka:
    def __init__(self, address: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, "transactional.id": "mover"})
        self._producer.init_transactions(_WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, value: bytes) -> None:
        errors: list[Any] = []
        self._producer.produce(_TOPIC, value, on_delivery=lambda error, _: errors.append(error))
        assert self._producer.flush(_WAIT_S) == 0
        assert errors == [None]

    def commit(self) -> None:
        self._producer.commit_transaction(_WAIT_S)

    def close(self) -> None:
        """It has nothing that must be closed."""


class KafkaPython:
    def __init__(self, address: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=address, transactional_id="mover")
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, value: bytes) -> None:
        self._producer.send(_TOPIC, value).get(_WAIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def close(self) -> None:
        self._producer.close(1)


class Aiokafka:
    """On a loop in a thread of its own."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer = self._run(self._start(address))

    async def _start(self, address: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="mover")
        await producer.start()
        return producer

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, value: bytes) -> None:
        self._run(self._producer.send_and_wait(_TOPIC, value))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def close(self) -> None:
        with suppress(Exception):
            self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)


def _committed(broker: BrokerProcess) -> list[bytes]:
    settings = {"bootstrap.servers": broker.address, "group.id": "check", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    found: list[bytes] = []
    while (message := consumer.poll(_WAIT_S)) is not None and message.error() is None:
        found.append(message.value() or b"")
    consumer.close()
    return found


@pytest.fixture(params=["everysec", "always", "two nodes"])
def broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> BrokerProcess:
    if request.param == "two nodes":
        made = start_broker(nodes=2, port=ports_in_a_row(2))
    else:
        made = start_broker(durability=request.param)
    topic = NewTopic(_TOPIC, 1, 1)
    administrator = AdminClient({"bootstrap.servers": made.address})
    administrator.create_topics([topic])[_TOPIC].result(_WAIT_S)
    return made


@pytest.mark.parametrize("client", [Librdkafka, KafkaPython, Aiokafka])
def test_transactions_go_on(broker: BrokerProcess, client: Callable[[str], Mover]) -> None:
    mover = client(broker.address)
    try:
        mover.begin()
        mover.send(b"before")
        mover.commit()
        broker.stop()  # between two transactions
        broker.start()
        mover.begin()
        mover.send(b"first")
        broker.stop()  # within one
        broker.start()
        mover.send(b"second")
        mover.commit()
        wait_until(lambda: len(_committed(broker)) == 3, "a commit is not seen")
        assert _committed(broker) == [b"before", b"first", b"second"]
    finally:
        mover.close()
