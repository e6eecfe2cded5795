"""min.insync.replicas on a store that never had a replica: it counts as 1, and a warning says so."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.client import DeliveryFailed, Sent
from tests.clients.confluent_adapter import ConfluentKafka
from tests.conftest import StartBroker

WARNING = "min.insync.replicas of a topic exceeds the copies of the store"
ONE_TRY = {"acks": "all", "retries": 0}

client = ConfluentKafka()
admin: Any = import_module("confluent_kafka.admin")


def test_a_topic_is_written_all_the_same_and_its_making_warns(broker: BrokerProcess, topic: str) -> None:
    client.create_topic(broker.address, topic, 1, {"min.insync.replicas": "2"})
    assert client.produce(broker.address, topic, [Sent(0, None, b"a")], ONE_TRY) == [0]
    assert warned_of(broker, topic)


def test_a_topic_that_is_changed_warns(broker: BrokerProcess, topic: str) -> None:
    client.create_topic(broker.address, topic, 1, {})
    assert not warned_of(broker, topic)
    more = admin.ConfigEntry("min.insync.replicas", "3", incremental_operation=admin.AlterConfigOpType.SET)
    resource = admin.ConfigResource("topic", topic, incremental_configs=[more])
    administrator = admin.AdminClient({"bootstrap.servers": broker.address})
    (changed,) = administrator.incremental_alter_configs([resource]).values()
    changed.result(30)
    assert warned_of(broker, topic)


def test_a_broker_that_is_told_that_there_are_replicas_refuses(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(store_replicas=1)
    client.create_topic(broker.address, topic, 1, {"min.insync.replicas": "2"})
    with pytest.raises(DeliveryFailed) as refusal:
        client.produce(broker.address, topic, [Sent(0, None, b"a")], ONE_TRY)
    assert refusal.value.code == 19
    assert not warned_of(broker, topic)


def warned_of(broker: BrokerProcess, topic: str) -> bool:
    return any(WARNING in line and topic in line for line in broker.log.splitlines())
