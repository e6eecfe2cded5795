"""The administrators of confluent-kafka, kafka-python and aiokafka, unchanged, with their defaults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from confluent_kafka import TopicPartition
from kafka.admin import ConfigResource as PyConfigResource
from kafka.admin import ConfigResourceType as PyConfigResourceType
from kafka.admin import KafkaAdminClient
from kafka.admin import NewPartitions as PyNewPartitions
from kafka.admin import NewTopic as PyNewTopic
from kafka.errors import TopicAlreadyExistsError

from tests.broker.administrator import BROKER, Administrator
from tests.broker.peers import batch_of, metadata, produce
from tests.broker_process import BrokerProcess, wait_until

TIMEOUT_S = 20
admin: Any = import_module("confluent_kafka.admin")
"""Its names are there but not declared, so the type checker cannot follow an import."""


@pytest.fixture(scope="module")
def confluent(broker: BrokerProcess) -> Any:
    return admin.AdminClient({"bootstrap.servers": broker.address})


@pytest.fixture(scope="module")
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


@pytest.fixture
async def aio(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await client.start()
    yield client
    await client.close()


def done(futures: dict[Any, Any]) -> Any:
    """The one result of a call of confluent-kafka."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def partitions_of(administrator: Administrator, topic: str) -> int:
    (found,) = metadata(administrator.connection, topic).topics
    return len(found.partitions)


def fill(administrator: Administrator, topic: str) -> None:
    produce(administrator.connection, topic, {0: batch_of(*(b"%d" % n for n in range(10)))})


def test_confluent_creates_describes_and_deletes(confluent: Any, topic: str) -> None:
    done(confluent.create_topics([admin.NewTopic(topic, 3, config={"retention.ms": "1000"})]))
    with pytest.raises(confluent_kafka.KafkaException, match="already exists"):
        done(confluent.create_topics([admin.NewTopic(topic, 3)]))
    described = done(confluent.describe_topics(confluent_kafka.TopicCollection([topic])))
    assert (described.name, len(described.partitions)) == (topic, 3)
    done(confluent.create_partitions([admin.NewPartitions(topic, 5)]))
    wait_until(lambda: len(confluent.list_topics(topic).topics[topic].partitions) == 5, "no new partitions")
    done(confluent.delete_topics([topic]))
    with pytest.raises(confluent_kafka.KafkaException):
        done(confluent.delete_topics([topic]))


def test_confluent_reads_and_changes_configs(confluent: Any, administrator: Administrator, topic: str) -> None:
    administrator.create(topic)
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
    configs = done(confluent.describe_configs([resource]))
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    assert configs["headrace.topic.id"].is_read_only
    for operation, value, policy in (
        (admin.AlterConfigOpType.APPEND, "compact", "delete,compact"),
        (admin.AlterConfigOpType.SUBTRACT, "delete", "compact"),
        (admin.AlterConfigOpType.SET, "delete", "delete"),
    ):
        entry = admin.ConfigEntry("cleanup.policy", value, incremental_operation=operation)
        done(confluent.incremental_alter_configs([admin.ConfigResource("topic", topic, incremental_configs=[entry])]))
        assert done(confluent.describe_configs([resource]))["cleanup.policy"].value == policy
    bad = admin.ConfigEntry("retention.ms", "soon", incremental_operation=admin.AlterConfigOpType.SET)
    with pytest.raises(confluent_kafka.KafkaException, match="Not a number of type LONG"):
        done(confluent.incremental_alter_configs([admin.ConfigResource("topic", topic, incremental_configs=[bad])]))
    done(confluent.alter_configs([admin.ConfigResource("topic", topic, set_config={"segment.ms": "5"})]))
    assert administrator.own_configs(topic) == {"segment.ms": "5"}
    settings = done(confluent.describe_configs([admin.ConfigResource(admin.ResourceType.BROKER, "0")]))
    assert settings["num.partitions"].value == "1"


def test_confluent_changes_configs_of_a_broker_while_it_runs(confluent: Any, administrator: Administrator) -> None:
    name = "0"

    def alter(key: str, value: str | None, operation: admin.AlterConfigOpType) -> None:
        entry = admin.ConfigEntry(key, value, incremental_operation=operation)
        resource = admin.ConfigResource(admin.ResourceType.BROKER, name, incremental_configs=[entry])
        done(confluent.incremental_alter_configs([resource]))

    def described(broker: str) -> dict[str, Any]:
        found: dict[str, Any] = done(confluent.describe_configs([admin.ConfigResource("broker", broker)]))
        return found

    alter("log.roll.ms", "77000", admin.AlterConfigOpType.SET)
    assert (described("0")["log.roll.ms"].value, described("0")["log.roll.ms"].is_read_only) == ("77000", False)
    assert described(name)["log.roll.ms"].source == 2
    alter("log.roll.ms", None, admin.AlterConfigOpType.DELETE)
    assert described("0")["log.roll.ms"].is_default
    with pytest.raises(confluent_kafka.KafkaException, match="Cannot update these configs dynamically"):
        alter("num.partitions", "3", admin.AlterConfigOpType.SET)
    done(confluent.alter_configs([admin.ConfigResource("broker", name, set_config={"log.roll.ms": "88000"})]))
    assert described("0")["log.roll.ms"].value == "88000"
    assert administrator.replace(name, {}, BROKER) == (0, None)


def test_confluent_deletes_records(confluent: Any, administrator: Administrator, topic: str) -> None:
    administrator.create(topic)
    fill(administrator, topic)
    assert done(confluent.delete_records([TopicPartition(topic, 0, 4)])).low_watermark == 4
    found = done(confluent.list_offsets({TopicPartition(topic, 0): admin.OffsetSpec.earliest()}))
    assert found.offset == 4


def test_confluent_describes_the_cluster(confluent: Any) -> None:
    cluster = confluent.describe_cluster().result(TIMEOUT_S)
    assert [node.id for node in cluster.nodes] == [0]
    assert cluster.controller.id == 0


def test_kafka_python_creates_describes_and_deletes(
    kafka_python: KafkaAdminClient, administrator: Administrator, topic: str
) -> None:
    kafka_python.create_topics([PyNewTopic(topic, 2, 1, topic_configs={"retention.ms": "1000"})])
    with pytest.raises(TopicAlreadyExistsError):
        kafka_python.create_topics([PyNewTopic(topic, 2, 1)])
    (described,) = kafka_python.describe_topics([topic])
    assert len(described["partitions"]) == 2
    kafka_python.create_partitions({topic: PyNewPartitions(4)})
    assert partitions_of(administrator, topic) == 4
    assert administrator.own_configs(topic) == {"retention.ms": "1000"}
    kafka_python.delete_topics([topic])
    assert topic not in kafka_python.list_topics()


def test_kafka_python_reads_and_changes_configs(
    kafka_python: KafkaAdminClient, administrator: Administrator, topic: str
) -> None:
    administrator.create(topic)
    kafka_python.alter_configs([PyConfigResource(PyConfigResourceType.TOPIC, topic, {"segment.ms": "5"})])
    assert administrator.own_configs(topic) == {"segment.ms": "5"}
    described = kafka_python.describe_configs([PyConfigResource(PyConfigResourceType.TOPIC, topic)])
    assert "segment.ms" in str(described)
    kafka_python.describe_configs([PyConfigResource(PyConfigResourceType.BROKER, "0")])


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (PyConfigResourceType.BROKER, "log.roll.ms", "66000"),
        (PyConfigResourceType.GROUP, "consumer.session.timeout.ms", "50000"),
    ],
)
def test_kafka_python_reads_changes_and_lists_configs_of_brokers_and_groups(
    kafka_python: KafkaAdminClient,
    administrator: Administrator,
    topic: str,
    kind: PyConfigResourceType,
    key: str,
    value: str,
) -> None:
    name = "0" if kind is PyConfigResourceType.BROKER else topic
    kafka_python.alter_configs([PyConfigResource(kind, name, {key: value})])
    assert value in str(kafka_python.describe_configs([PyConfigResource(kind, name, {key: None})]))
    assert name in str(kafka_python.list_config_resources([kind]))
    assert administrator.replace(name, {}, kind.value) == (0, None)


def test_kafka_python_deletes_records_and_describes(
    kafka_python: KafkaAdminClient, administrator: Administrator, topic: str
) -> None:
    administrator.create(topic)
    fill(administrator, topic)
    partition = kafka.TopicPartition(topic, 0)
    kafka_python.delete_records({partition: 6})
    assert administrator.delete_records(topic, 0, 0) == (0, 6)
    assert kafka_python.describe_cluster()["controller_id"] == 0
    assert topic in str(kafka_python.describe_log_dirs())


async def test_aiokafka_creates_describes_and_deletes(
    aio: AIOKafkaAdminClient, administrator: Administrator, topic: str
) -> None:
    await aio.create_topics([AioNewTopic(topic, 2, 1, topic_configs={"retention.ms": "1000"})])
    (described,) = await aio.describe_topics([topic])
    assert len(described["partitions"]) == 2
    await aio.create_partitions({topic: AioNewPartitions(4)})
    assert partitions_of(administrator, topic) == 4
    resource = AioConfigResource(AioConfigResourceType.TOPIC, topic, {"segment.ms": "5"})
    await aio.alter_configs([resource])
    assert administrator.own_configs(topic) == {"segment.ms": "5"}
    (answer,) = await aio.describe_configs([AioConfigResource(AioConfigResourceType.TOPIC, topic)])
    assert "segment.ms" in str(answer)
    fill(administrator, topic)
    await aio.delete_records({aiokafka.TopicPartition(topic, 0): RecordsToDelete(before_offset=6)})
    assert administrator.delete_records(topic, 0, 0) == (0, 6)
    await aio.delete_topics([topic])
    assert topic not in await aio.list_topics()
