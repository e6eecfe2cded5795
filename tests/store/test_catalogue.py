"""Topics: made once, seen by all nodes, deleted to the last key, and a new log when made again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace.store.catalogue import Topic
from headrace.store.errors import PartitionGone
from headrace.store.keys import Keys
from headrace.store.store import Store
from headrace.store.writer import Appended
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.conftest import OpenStore
from tests.store.produced import produce, until
from tests.store.servers import Valkey


async def test_a_topic_is_seen_by_every_node(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    topic = await store.catalogue.create("orders", 3, {"retention.ms": "1000"})
    assert await other.catalogue.find("orders") == topic
    assert await other.catalogue.find_uuid(topic.uuid) == topic
    assert await other.catalogue.find("nothing") is None
    assert (topic.partitions, topic.configs, len(topic.uuid)) == (3, {"retention.ms": "1000"}, 16)
    assert topic.ulid.startswith("top_")


async def test_what_others_change_is_seen_by_the_version(valkey: Valkey, store: Store, open_store: OpenStore) -> None:
    topic = await store.catalogue.create("orders", 1, {})
    other = await open_store()
    assert not await other.catalogue.refresh()
    await store.catalogue.set_configs(topic, {"cleanup.policy": "compact"})
    assert await other.catalogue.refresh()
    assert other.catalogue.by_name["orders"].configs == {"cleanup.policy": "compact"}
    valkey.ask("CONFIG", "RESETSTAT")
    assert not await other.catalogue.refresh()
    assert valkey.command_counts().get("hgetall", 0) == 0


async def test_who_creates_a_topic_sees_what_others_changed_before(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    theirs = await other.catalogue.create("theirs", 1, {})
    await store.catalogue.create("ours", 1, {})
    assert set(store.catalogue.by_name) == {"theirs", "ours"}
    await other.catalogue.delete(theirs)
    with pytest.raises(KafkaError, match="already exists"):
        await store.catalogue.create("ours", 1, {})
    assert set(store.catalogue.by_name) == {"ours"}
    assert not await store.catalogue.refresh()


async def test_of_two_that_create_a_topic_at_once_one_is_told_that_it_exists(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    other = await open_store()
    answers = await asyncio.gather(
        store.catalogue.create("orders", 2, {}), other.catalogue.create("orders", 2, {}), return_exceptions=True
    )
    [topic] = [answer for answer in answers if isinstance(answer, Topic)]
    [error] = [answer for answer in answers if isinstance(answer, KafkaError)]
    assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS
    expected = {key for n in range(2) for key in topic.keys(store.keys, n).all()}
    assert valkey.keys_with("orders") <= expected


async def test_a_new_partition_is_an_empty_log(valkey: Valkey, store: Store) -> None:
    topic = await store.catalogue.create("orders", 1, {})
    keys = topic.keys(store.keys, 0)
    assert valkey.ask("XLEN", keys.log) == 0
    assert valkey.ask("XINFO", "GROUPS", keys.log) == []
    partition = await store.partition(topic, 0)
    assert (partition.log_start, partition.end, partition.leader_epoch) == (0, 0, 0)


async def test_partitions_can_be_added(store: Store) -> None:
    topic = await store.catalogue.create("orders", 1, {})
    await store.catalogue.add_partitions(topic, 3)
    topic = store.catalogue.by_name["orders"]
    assert topic.partitions == 3
    assert await produce(await store.partition(topic, 2), b"x") == Appended(0)


async def test_a_change_on_top_of_an_outdated_record_is_refused(store: Store, open_store: OpenStore) -> None:
    topic = await store.catalogue.create("orders", 1, {})
    other = await open_store()
    await other.catalogue.set_configs(topic, {"retention.ms": "1"})
    with pytest.raises(KafkaError):
        await store.catalogue.set_configs(topic, {"retention.ms": "2"})
    assert store.catalogue.by_name["orders"].configs == {"retention.ms": "1"}
    await store.catalogue.set_configs(store.catalogue.by_name["orders"], {"retention.ms": "2"})


async def test_two_nodes_that_raise_epochs_at_once_both_succeed(store: Store, open_store: OpenStore) -> None:
    topic = await store.catalogue.create("orders", 4, {})
    other = await open_store()
    await asyncio.gather(
        *(catalogue.set_epoch(topic, n, 1) for n, catalogue in enumerate([store.catalogue, other.catalogue] * 2))
    )
    await store.catalogue.refresh()
    assert store.catalogue.by_name["orders"].epochs == {0: 1, 1: 1, 2: 1, 3: 1}
    await store.catalogue.set_epoch(topic, 0, 0)
    assert store.catalogue.by_name["orders"].epochs[0] == 1


async def test_deleting_removes_every_key(valkey: Valkey, store: Store) -> None:
    topic = await store.catalogue.create("orders", 2, {})
    partition = await store.partition(topic, 0)
    await produce(partition, b"x", producer=7, sequence=0)
    await partition.save_producers()
    await store.catalogue.delete(topic)
    assert not valkey.keys_with("orders")
    assert not valkey.ask("EXISTS", store.keys.deleted_topics)
    assert partition.is_gone
    assert len(partition.tail) == store.tails.size_bytes == 0


async def test_deleting_what_is_not_there_says_so(store: Store) -> None:
    topic = await store.catalogue.create("orders", 1, {})
    await store.catalogue.delete(topic)
    with pytest.raises(KafkaError) as raised:
        await store.catalogue.delete(topic)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_node_with_an_outdated_copy_does_not_delete_the_topic_that_was_made_again(
    store: Store, open_store: OpenStore
) -> None:
    old = await store.catalogue.create("orders", 1, {})
    other = await open_store()
    await store.catalogue.delete(old)
    new = await store.catalogue.create("orders", 1, {})
    with pytest.raises(KafkaError):
        await other.catalogue.delete(old)
    assert await produce(await store.partition(new, 0), b"x") == Appended(0)
    assert await store.catalogue.find("orders") == new


async def test_deleting_removes_partitions_that_another_node_added(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    topic = await store.catalogue.create("orders", 1, {})
    other = await open_store()
    await other.catalogue.add_partitions(topic, 5)
    await store.catalogue.delete(topic)
    assert not valkey.keys_with("orders")


async def test_a_topic_that_was_made_again_is_a_new_log(valkey: Valkey, store: Store) -> None:
    old = await store.partition(await store.catalogue.create("orders", 1, {}), 0)
    await produce(old, b"old")
    await store.catalogue.delete(old.topic)
    new = await store.partition(await store.catalogue.create("orders", 1, {}), 0)
    assert new.topic.uuid != old.topic.uuid
    assert new.keys.log != old.keys.log
    assert await produce(new, b"new") == Appended(0)
    with pytest.raises(PartitionGone):
        await produce(old, b"late")
    assert valkey.ask("XLEN", new.keys.log) == 1


async def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    topic = await store.catalogue.create("orders", 2, {})
    valkey.ask("HDEL", store.keys.topics, "orders")
    valkey.ask("HSET", store.keys.deleted_topics, topic.id, msgspec.json.encode(topic))
    await open_store()
    await until(lambda: not valkey.ask("EXISTS", store.keys.deleted_topics))
    assert not valkey.keys_with("orders")


async def test_partitions_of_a_topic_that_another_node_deleted_are_forgotten(
    store: Store, open_store: OpenStore
) -> None:
    topic = await store.catalogue.create("orders", 1, {})
    partition = await store.partition(topic, 0)
    woken = asyncio.Event()
    partition.watchers.add(lambda _: woken.set())
    await (await open_store()).catalogue.delete(topic)
    await asyncio.wait_for(woken.wait(), 10)
    assert partition.is_gone
    assert store.known_partition(topic.uuid, 0) is None


async def test_a_topic_deleted_while_its_partition_is_rebuilt_leaves_no_key(
    valkey: Valkey, store: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion comes between the look at the catalogue and the making of the keys."""
    topic = await store.catalogue.create("orders", 1, {})
    other = await open_store()
    make = other.catalogue._make_partition

    async def delete_then_make(*arguments: Any) -> None:
        await store.catalogue.delete(topic)
        await make(*arguments)

    monkeypatch.setattr(other.catalogue, "_make_partition", delete_then_make)
    assert not await other.catalogue.remake_partition(topic, 0, 0)
    assert not valkey.keys_with("orders")


async def test_versions_after_a_flush_are_higher_than_before(valkey: Valkey, store: Store) -> None:
    await store.catalogue.create("orders", 1, {})
    before = store.catalogue.version
    await until(lambda: store.now_ms() > before)
    valkey.ask("FLUSHALL")
    await store.catalogue.create("orders", 1, {})
    assert store.catalogue.version > before


async def test_the_cluster_id_stays(store: Store, open_store: OpenStore) -> None:
    assert (await open_store()).cluster_id == store.cluster_id
    assert len(store.cluster_id) == 22


def test_names_with_braces_and_percents_have_keys_of_their_own() -> None:
    keys = Keys()
    names = ["a", "{a}", "%7Ba%7D", "a}", "%"]
    logs = {keys.partition(name, 0, "id").log for name in names}
    assert len(logs) == len(names)
    for log in logs:
        assert log.count("{") == log.count("}") == 1
    assert len({key[key.index("{") : key.index("}")] for key in keys.partition("a", 0, "id").all()}) == 1
