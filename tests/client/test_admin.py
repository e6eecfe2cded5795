"""The administrator's calls against our own broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client import Admin, Cluster, Groups, Producer, Reader
from headrace.client import cluster as client_cluster
from headrace.client.admin import BROKER, ConfigEntry
from headrace.client.groups import CommittedOffset
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.special_times import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Cluster(broker.address, timeout_s=10) as cluster:
        yield Admin(cluster)


@pytest.fixture
def created(admin: Admin, topic: str) -> str:
    """A topic of three partitions."""
    admin.create_topic(topic, 3)
    return topic


def config(admin: Admin, topic: str, name: str) -> ConfigEntry:
    (entry,) = admin.describe_configs(topic, keys=[name])
    return entry


def test_a_cluster_has_an_id_nodes_and_a_controller(admin: Admin, broker: BrokerProcess) -> None:
    info = admin.describe_cluster()
    assert info.cluster_id
    assert [f"{node.host}:{node.port}" for node in info.nodes] == [broker.address]
    assert info.controller_id == info.nodes[0].node_id


def test_topics_are_created_described_listed_and_deleted(admin: Admin, topic: str) -> None:
    topic_id = admin.create_topic(topic, 4, {"retention.ms": "60000"})
    info = admin.describe_topic(topic)
    assert (info.name, info.topic_id, info.is_internal) == (topic, topic_id, False)
    assert [p.index for p in info.partitions] == [0, 1, 2, 3]
    assert info in admin.list_topics()
    assert config(admin, topic, "retention.ms").value == "60000"
    admin.delete_topic(topic)
    assert topic not in [t.name for t in admin.list_topics()]
    with pytest.raises(KafkaError, match=f"There is no topic '{topic}'") as raised:
        admin.describe_topic(topic)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_exists_is_not_created_again(admin: Admin, created: str) -> None:
    with pytest.raises(KafkaError, match="already exists") as raised:
        admin.create_topic(created)
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_validating_creates_nothing(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2, validate_only=True)
    assert topic not in [t.name for t in admin.list_topics()]


def test_a_bad_name_is_refused_with_the_brokers_words(admin: Admin) -> None:
    with pytest.raises(KafkaError, match="bad/name") as raised:
        admin.create_topic("bad/name")
    assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_partitions_are_added_never_taken_away(admin: Admin, created: str) -> None:
    admin.create_partitions(created, 5)
    assert len(admin.describe_topic(created).partitions) == 5
    with pytest.raises(KafkaError) as raised:
        admin.create_partitions(created, 2)
    assert raised.value.code == ErrorCode.INVALID_PARTITIONS


def test_configs_are_changed_one_by_one_and_reset(admin: Admin, created: str) -> None:
    default = config(admin, created, "retention.ms")
    admin.alter_configs(created, {"retention.ms": "123000", "max.message.bytes": "2000"})
    admin.alter_configs(created, {"max.message.bytes": "3000"})
    changed = config(admin, created, "retention.ms")
    assert (changed.value, changed.source, changed.read_only) == ("123000", "topic", False)
    assert config(admin, created, "max.message.bytes").value == "3000"
    admin.alter_configs(created, {"retention.ms": None})
    assert config(admin, created, "retention.ms") == default
    assert default.source != "topic"


def test_a_config_that_makes_no_sense_is_refused(admin: Admin, created: str) -> None:
    with pytest.raises(KafkaError) as raised:
        admin.alter_configs(created, {"retention.ms": "soon"})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_a_brokers_configs_are_shown(admin: Admin) -> None:
    node_id = admin.describe_cluster().nodes[0].node_id
    assert admin.describe_configs(str(node_id), BROKER)


def test_offsets_are_found_by_place_and_by_time(admin: Admin, created: str) -> None:
    with Producer(admin.cluster) as producer:
        for at in (1000, 3000, 2000):
            producer.send(created, b"x", partition=0, timestamp_ms=at)
            producer.flush()

    def offset(at: int) -> int:
        return admin.list_offsets({(created, 0): at})[created, 0].offset

    assert [offset(at) for at in (EARLIEST, LATEST, MAX_TIMESTAMP)] == [0, 3, 1]
    assert [offset(at) for at in (0, 1000, 1001, 3000, 3001)] == [0, 0, 1, 1, -1]
    assert [offset(at) for at in (EARLIEST_LOCAL, LATEST_TIERED)] == [0, -1]
    several = admin.list_offsets({(created, 0): LATEST, (created, 1): LATEST})
    assert {index: found.offset for (_, index), found in several.items()} == {0: 3, 1: 0}


def test_records_are_deleted_up_to_an_offset(admin: Admin, created: str) -> None:
    with Producer(admin.cluster) as producer:
        for n in range(10):
            producer.send(created, b"%d" % n, partition=0)
    assert admin.delete_records({(created, 0): 4}) == {(created, 0): 4}
    read = [r.value for _, _, r in Reader(admin.cluster).read({(created, 0): EARLIEST})]
    assert read == [b"%d" % n for n in range(4, 10)]
    with pytest.raises(KafkaError) as raised:
        admin.delete_records({(created, 0): 11})
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_that_is_not_there_is_created_by_the_first_record(admin: Admin, topic: str) -> None:
    with Producer(admin.cluster) as producer:
        sent = producer.send(topic, b"x")
    assert sent.offset == 0


def test_where_nothing_is_created_by_itself_that_is_an_error(start_broker: StartBroker) -> None:
    with Cluster(start_broker(auto_create_topics=False, durability="memory").address, timeout_s=10) as cluster:
        with pytest.raises(KafkaError, match="There is no topic 'nowhere'"):
            Producer(cluster).send("nowhere", b"x")


def test_a_batch_that_is_too_large_is_refused_and_the_producer_goes_on(admin: Admin, created: str) -> None:
    admin.alter_configs(created, {"max.message.bytes": "1000"})
    producer = Producer(admin.cluster)
    producer.send(created, bytes(5000), partition=0)
    with pytest.raises(KafkaError) as raised:
        producer.flush()
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    small = producer.send(created, b"small", partition=0)
    producer.flush()
    assert small.offset == 0


def test_a_topic_created_anew_is_found_by_its_new_id(broker: BrokerProcess, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    with Cluster(broker.address, timeout_s=10) as other:
        with Producer(other) as producer:
            producer.send(topic, b"old", partition=0)
        admin.delete_topic(topic)
        admin.create_topic(topic, 1)
        with Producer(other) as producer:
            sent = producer.send(topic, b"new", partition=0)
        assert sent.offset == 0
        assert [r.value for _, _, r in Reader(other).read({(topic, 0): 0})] == [b"new"]


def test_groups_are_listed_described_moved_and_deleted(admin: Admin, created: str) -> None:
    groups = Groups(admin.cluster)
    groups.set_offsets(created, {(created, 0): 7, (created, 1): CommittedOffset(8, 0, "note")})
    assert groups.offsets(created) == {
        (created, 0): CommittedOffset(7),
        (created, 1): CommittedOffset(8, 0, "note"),
    }
    assert groups.offsets(created, [(created, 1), (created, 2)]) == {(created, 1): CommittedOffset(8, 0, "note")}
    assert created in [group.group_id for group in groups.list_groups()]
    info = groups.describe_group(created)
    assert (info.group_id, info.state, info.members) == (created, "Empty", [])
    groups.delete_group(created)
    assert groups.offsets(created) == {}


def test_more_partitions_than_a_request_may_name_are_asked_for_in_parts(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 100,000 partitions `topics list` was cut off: a broker takes so many elements in one request."""
    monkeypatch.setattr(client_cluster, "PARTITIONS_PER_REQUEST", 500)
    broker = start_broker(durability="memory", request_elements_max=1_000, topic_partitions_max=2_000)
    with Cluster(broker.address, timeout_s=20) as cluster:
        admin, groups = Admin(cluster), Groups(cluster)
        admin.create_topic("wide", 1_200)
        every = [("wide", number) for number in range(1_200)]
        assert sorted(admin.list_offsets(dict.fromkeys(every, LATEST))) == every
        assert sorted(admin.delete_records(dict.fromkeys(every, -1))) == every
        groups.set_offsets("readers", dict.fromkeys(every, 0))
        assert sorted(groups.offsets("readers", every)) == every


def test_calls_go_on_when_the_broker_is_back(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Cluster(broker.address, timeout_s=20) as cluster:
        with Producer(cluster) as producer:
            producer.send("lasting", b"1", partition=0)
            producer.flush()
            broker.stop()
            broker.start()
            producer.send("lasting", b"2", partition=0)
        assert [r.value for _, _, r in Reader(cluster).read({("lasting", 0): 0})] == [b"1", b"2"]
