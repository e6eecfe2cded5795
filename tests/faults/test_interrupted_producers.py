"""Transactional producers of librdkafka that are idle while the store is killed: one abort, and they go on."""

from __future__ import annotations

import os
import signal

import pytest
from confluent_kafka import KafkaException, Producer

from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.stores import of_one_server

pytestmark = [pytest.mark.faults, of_one_server]
WAIT_S = 20.0


def _kill_store(broker: BrokerProcess) -> None:
    before = broker.valkey_pid
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: broker.valkey_pid != before, "the store was not started again")


def _commit(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("ledger", b"entry", partition=0)
    producer.commit_transaction(WAIT_S)


def test_an_idle_producer_aborts_once_and_goes_on(start_broker: StartBroker) -> None:
    broker = start_broker()
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "idle"})
    producer.init_transactions(WAIT_S)
    _commit(producer)
    for kills in (1, 2):  # twice without a request of the producer: it must not lose its id over that
        for _ in range(kills):
            _kill_store(broker)
        with pytest.raises(KafkaException) as raised:
            _commit(producer)
        assert raised.value.args[0].txn_requires_abort()
        producer.abort_transaction(WAIT_S)
        _commit(producer)
