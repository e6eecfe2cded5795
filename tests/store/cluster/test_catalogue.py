"""Topics: made once, seen by all nodes, deleted to the last key, and a new log when made again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from headrace.store.cluster.catalogue import Catalogue, Placing, Topic
from headrace.store.cluster.shared_hash_scripts import NOTES
from headrace.store.keys import Keys
from headrace.store.partition.appending import Appended
from headrace.store.redis.errors import PartitionGone, StoreAway
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of
from tests.store.partition.test_restarts import another_server
from tests.store.produced import produce, until, values
from tests.store.servers import Valkey


async def test_a_topic_is_seen_by_every_node(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    topic = await store.default.catalogue.create("orders", 3, {"retention.ms": "1000"})
    assert await other.default.catalogue.find("orders") == topic
    assert await other.default.catalogue.find_uuid(topic.uuid) == topic
    assert await other.default.catalogue.find("nothing") is None
    assert (topic.partitions, topic.configs, len(topic.uuid)) == (3, {"retention.ms": "1000"}, 16)
    assert topic.ulid.startswith("top_")


async def test_a_topic_that_another_request_took_in_meanwhile_is_found(
    store: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (await open_store()).default.catalogue
    topic = await store.default.catalogue.create("orders", 1, {})
    look = other.refresh

    async def look_behind_another() -> bool:
        await look()  # the other request's
        return await look()

    monkeypatch.setattr(other, "refresh", look_behind_another)
    assert await other.find("orders") == topic
    later = await store.default.catalogue.create("later", 1, {})
    assert await other.find_uuid(later.uuid) == later


async def test_what_others_change_is_seen_by_the_version(valkey: Valkey, store: Store, open_store: OpenStore) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    other = await open_store()
    assert not await other.default.catalogue.refresh()
    await store.default.catalogue.set_configs(topic, {"cleanup.policy": "compact"})
    assert await other.default.catalogue.refresh()
    assert other.default.catalogue.by_name["orders"].configs == {"cleanup.policy": "compact"}
    valkey.ask("CONFIG", "RESETSTAT")
    assert not await other.default.catalogue.refresh()
    assert valkey.command_counts().get("hgetall", 0) == 0


async def test_changes_of_ours_and_of_others_cost_what_changed_and_not_what_is_there(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    for number in range(20):
        await store.default.catalogue.create(f"other-{number}", 1, {})
    other = await open_store()
    untouched = other.default.catalogue.by_name["other-7"]
    valkey.ask("CONFIG", "RESETSTAT")
    topic = await store.default.catalogue.create("orders", 1, {})
    await store.default.catalogue.set_configs(topic, {"retention.ms": "1"})
    await store.default.catalogue.add_partitions(store.default.catalogue.by_name["orders"], 2)
    await store.default.catalogue.set_epoch(topic, 0, 1)
    await store.default.catalogue.delete(store.default.catalogue.by_name["other-0"])
    assert await other.default.catalogue.refresh()
    await other.default.catalogue.set_configs(other.default.catalogue.by_name["orders"], {})
    assert await store.default.catalogue.refresh()
    assert valkey.command_counts().get("hgetall", 0) == 0
    assert other.default.catalogue.by_name == store.default.catalogue.by_name == await topics_in(store)
    assert other.default.catalogue.by_uuid == {topic.uuid: topic for topic in other.default.catalogue.by_name.values()}
    assert other.default.catalogue.by_name["other-7"] is untouched


async def test_who_is_behind_by_more_than_is_noted_reads_all(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    other = await open_store()
    for number in range(NOTES + 1):
        topic = store.default.catalogue.by_name["orders"]
        await store.default.catalogue.set_configs(topic, {"retention.ms": str(number)})
    assert await other.default.catalogue.refresh()
    assert other.default.catalogue.by_name == store.default.catalogue.by_name
    # A broker that leaves no notes changed something.
    changed = msgspec.structs.replace(topic, configs={"retention.ms": "7"})
    valkey.ask("HSET", store.default.keys.topics, "orders", msgspec.json.encode(changed))
    valkey.ask("HINCRBY", store.default.keys.topics, ":version", 1)
    await asyncio.gather(store.default.catalogue.refresh(), other.default.catalogue.refresh())
    assert store.default.catalogue.by_name == other.default.catalogue.by_name == {"orders": changed}


async def test_two_nodes_that_change_topics_at_once_end_with_the_same_copy(store: Store, open_store: OpenStore) -> None:
    catalogues = [store.default.catalogue, (await open_store()).default.catalogue]

    async def work(catalogue: Catalogue, who: int) -> None:
        for number in range(30):
            topic = await catalogue.create(f"{who}-{number}", 1, {})
            with contextlib.suppress(KafkaError):
                await catalogue.set_configs(topic, {"retention.ms": "1"})
            if number % 3 == 0:
                await catalogue.delete(topic)
            await catalogue.refresh()

    await asyncio.gather(*(work(catalogue, who) for who, catalogue in enumerate(catalogues * 2)))
    for catalogue in catalogues:
        await catalogue.refresh()
        assert catalogue.by_name == await topics_in(store)
        assert len(catalogue.by_uuid) == len(catalogue.by_name) == 80


async def topics_in(store: Store) -> dict[str, Topic]:
    """What Redis has."""
    reply = await store.link.call("HGETALL", store.default.keys.topics)
    rows = {field.decode(): row for field, row in zip(reply[::2], reply[1::2], strict=True)}
    return {name: msgspec.json.decode(row, type=Topic) for name, row in rows.items() if name != ":version"}


async def test_who_creates_a_topic_sees_what_others_changed_before(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    theirs = await other.default.catalogue.create("theirs", 1, {})
    await store.default.catalogue.create("ours", 1, {})
    assert set(store.default.catalogue.by_name) == {"theirs", "ours"}
    await other.default.catalogue.delete(theirs)
    with pytest.raises(KafkaError, match="already exists"):
        await store.default.catalogue.create("ours", 1, {})
    assert set(store.default.catalogue.by_name) == {"ours"}
    assert not await store.default.catalogue.refresh()


async def test_of_two_that_create_a_topic_at_once_one_is_told_that_it_exists(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    other = await open_store()
    answers = await asyncio.gather(
        *(node.default.catalogue.create("orders", 2, {}) for node in (store, other)), return_exceptions=True
    )
    [topic] = [answer for answer in answers if isinstance(answer, Topic)]
    [error] = [answer for answer in answers if isinstance(answer, KafkaError)]
    assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS
    expected = {key for n in range(2) for key in topic.keys(store.default.keys, n).all()}
    assert valkey.keys_with("orders") <= expected


async def test_a_new_partition_is_an_empty_log(valkey: Valkey, store: Store) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    keys = topic.keys(store.default.keys, 0)
    assert valkey.ask("XLEN", keys.log) == 0
    assert valkey.ask("XINFO", "GROUPS", keys.log) == []
    partition = await store.default.partition(topic, 0)
    assert (partition.log_start, partition.end, partition.leader_epoch) == (0, 0, 0)


async def test_partitions_can_be_added(store: Store) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    await store.default.catalogue.add_partitions(topic, 3)
    topic = store.default.catalogue.by_name["orders"]
    assert topic.partitions == 3
    assert await produce(await store.default.partition(topic, 2), b"x") == Appended(0)


async def test_a_record_that_knows_nothing_of_replicas_can_be_changed(valkey: Valkey, store: Store) -> None:
    """Records are compared as bytes: a field that older versions do not write must not be in the comparison."""
    topic = await store.default.catalogue.create("orders", 1, {})
    record = json.loads(valkey.ask("HGET", store.default.keys.topics, "orders"))
    assert set(record) == {"name", "id", "partitions", "configs", "created_ms", "epochs"}
    await store.default.catalogue.add_partitions(topic, 2)
    assert store.default.catalogue.by_name["orders"].partitions == 2


async def test_where_a_topic_is_placed_survives_changes_and_other_nodes_see_it(
    store: Store, open_store: OpenStore
) -> None:
    topic = await store.default.catalogue.create("orders", 2, {}, Placing(2, {0: [0, 1], 1: [1, 0]}))
    await store.default.catalogue.add_partitions(topic, 4, {2: [1, 0], 3: [0, 1]})
    await store.default.catalogue.set_configs(store.default.catalogue.by_name["orders"], {"retention.ms": "1"})
    other = await open_store()
    for found in (store.default.catalogue.by_name["orders"], other.default.catalogue.by_name["orders"]):
        assert found.replication_factor == 2
        assert [found.assigned(number) for number in range(5)] == [[0, 1], [1, 0], [1, 0], [0, 1], []]


async def test_a_change_on_top_of_an_outdated_record_is_refused(store: Store, open_store: OpenStore) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    other = await open_store()
    await other.default.catalogue.set_configs(topic, {"retention.ms": "1"})
    with pytest.raises(KafkaError):
        await store.default.catalogue.set_configs(topic, {"retention.ms": "2"})
    assert store.default.catalogue.by_name["orders"].configs == {"retention.ms": "1"}
    await store.default.catalogue.set_configs(store.default.catalogue.by_name["orders"], {"retention.ms": "2"})


async def test_two_nodes_that_raise_epochs_at_once_both_succeed(store: Store, open_store: OpenStore) -> None:
    topic = await store.default.catalogue.create("orders", 4, {})
    other = await open_store()
    await asyncio.gather(
        *(
            catalogue.set_epoch(topic, n, 1)
            for n, catalogue in enumerate([store.default.catalogue, other.default.catalogue] * 2)
        )
    )
    await store.default.catalogue.refresh()
    assert store.default.catalogue.by_name["orders"].epochs == {0: 1, 1: 1, 2: 1, 3: 1}
    await store.default.catalogue.set_epoch(topic, 0, 0)
    assert store.default.catalogue.by_name["orders"].epochs[0] == 1


async def test_deleting_removes_every_key(valkey: Valkey, store: Store) -> None:
    topic = await store.default.catalogue.create("orders", 2, {})
    partition = await store.default.partition(topic, 0)
    await produce(partition, b"x", producer=7, sequence=0)
    await partition.save_producers()
    await store.default.catalogue.delete(topic)
    assert not valkey.keys_with("orders")
    assert not valkey.ask("EXISTS", store.default.keys.deleted_topics)
    assert partition.is_gone
    assert len(partition.tail) == store.tails.size_bytes == 0


async def test_deleting_what_is_not_there_says_so(store: Store) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    await store.default.catalogue.delete(topic)
    with pytest.raises(KafkaError) as raised:
        await store.default.catalogue.delete(topic)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_node_with_an_outdated_copy_does_not_delete_the_topic_that_was_made_again(
    store: Store, open_store: OpenStore
) -> None:
    old = await store.default.catalogue.create("orders", 1, {})
    other = await open_store()
    await store.default.catalogue.delete(old)
    new = await store.default.catalogue.create("orders", 1, {})
    with pytest.raises(KafkaError):
        await other.default.catalogue.delete(old)
    assert await produce(await store.default.partition(new, 0), b"x") == Appended(0)
    assert await store.default.catalogue.find("orders") == new


async def test_deleting_removes_partitions_that_another_node_added(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    other = await open_store()
    await other.default.catalogue.add_partitions(topic, 5)
    await store.default.catalogue.delete(topic)
    assert not valkey.keys_with("orders")


async def test_a_topic_that_was_made_again_is_a_new_log(valkey: Valkey, store: Store) -> None:
    old = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
    await produce(old, b"old")
    await store.default.catalogue.delete(old.topic)
    new = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
    assert new.topic.uuid != old.topic.uuid
    assert new.keys.log != old.keys.log
    assert await produce(new, b"new") == Appended(0)
    with pytest.raises(PartitionGone):
        await produce(old, b"late")
    assert valkey.ask("XLEN", new.keys.log) == 1


@pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])
async def test_a_topic_that_was_made_again_has_no_record_of_the_deleted_one_in_an_older_store(
    valkey: Valkey, store: Store, monkeypatch: pytest.MonkeyPatch, configs: dict[str, str]
) -> None:
    """Though its partition is restored before anybody has finished the deletion there."""
    catalogue = store.default.catalogue
    old = await store.default.partition(await catalogue.create("orders", 1, configs), 0)
    await produce(old, b"old")
    checkpoint = valkey.checkpoint()
    await catalogue.delete(old.topic)
    new = await store.default.partition(await catalogue.create("orders", 1, configs), 0)
    await produce(new, b"new")
    with monkeypatch.context() as during:
        during.setattr(catalogue, "finish_deletions", AsyncMock())
        async with another_server(store):
            valkey.go_back_to(checkpoint)
        assert values(await all_of(new)) == [b"new"]
    await catalogue.finish_deletions()
    assert values(await all_of(new)) == [b"new"]
    assert new.gaps == []
    await produce(new, b"next")
    assert values(await all_of(new)) == [b"new", b"next"]


async def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    topic = await store.default.catalogue.create("orders", 2, {})
    valkey.ask("HDEL", store.default.keys.topics, "orders")
    valkey.ask("HSET", store.default.keys.deleted_topics, topic.id, msgspec.json.encode(topic))
    await open_store()
    await until(lambda: not valkey.ask("EXISTS", store.default.keys.deleted_topics))
    assert not valkey.keys_with("orders")


@pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])
async def test_once_a_topic_is_made_again_nothing_is_acknowledged_to_the_deleted_one(
    valkey: Valkey,
    store: Store,
    open_store: OpenStore,
    monkeypatch: pytest.MonkeyPatch,
    configs: dict[str, str],
) -> None:
    """Its deletion was cut short, and a node that has it open has not heard of it."""
    old = await store.default.catalogue.create("orders", 1, configs)
    other = await open_store()
    stale = await other.default.partition(old, 0)
    await produce(stale, b"old")
    monkeypatch.setattr(other.default.catalogue, "follow_to", _nothing_new)
    with monkeypatch.context() as cut, contextlib.suppress(StoreAway):
        cut.setattr(store.default.catalogue, "_remove_deleted", _cut_short)
        await store.default.catalogue.delete(old)
    new = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    monkeypatch.undo()  # a partition that is missed is looked up
    with pytest.raises(PartitionGone):
        await produce(stale, b"late")
    await produce(new, b"new")
    assert valkey.ask("XLEN", new.keys.log) == 1


async def _nothing_new(version: int) -> bool:
    return False


async def _cut_short(topic: Topic) -> None:
    raise StoreAway


async def test_partitions_of_a_topic_that_another_node_deleted_are_forgotten(
    store: Store, open_store: OpenStore
) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    partition = await store.default.partition(topic, 0)
    woken = asyncio.Event()
    partition.watchers.add(lambda _: woken.set())
    await (await open_store()).default.catalogue.delete(topic)
    await until(lambda: partition.is_gone)
    assert woken.is_set()
    assert store.known_partition(topic.uuid, 0) is None


async def test_a_topic_deleted_while_its_partition_is_rebuilt_leaves_no_key(
    valkey: Valkey, store: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion comes between the look at the catalogue and the making of the keys."""
    topic = await store.default.catalogue.create("orders", 1, {})
    other = await open_store()
    make = other.default.catalogue._make_partition

    async def delete_then_make(*arguments: Any) -> None:
        await store.default.catalogue.delete(topic)
        await make(*arguments)

    monkeypatch.setattr(other.default.catalogue, "_make_partition", delete_then_make)
    assert not await other.default.catalogue.remake_partition(topic, 0, 0)
    assert not valkey.keys_with("orders")


async def test_versions_after_a_flush_are_higher_than_before(valkey: Valkey, clock: MovableClock, store: Store) -> None:
    await store.default.catalogue.create("orders", 1, {})
    before = store.default.catalogue.version
    clock.advance(1)
    valkey.ask("FLUSHALL")
    await store.default.catalogue.create("orders", 1, {})
    assert store.default.catalogue.version > before


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


async def test_a_copy_that_is_written_back_takes_no_leader_epoch_and_no_partition_back(
    store: Store, open_store: OpenStore
) -> None:
    """After a loss each node gives the store its copy, and notes what it met: in whichever order."""
    other = await open_store()
    topic = await store.default.catalogue.create("orders", 1, {})
    for task in list(store._tasks):
        task.cancel()  # so that this copy stays as old as it is
    await other.default.catalogue.refresh()
    await other.default.catalogue.add_partitions(other.default.catalogue.by_name["orders"], 3)
    await other.default.catalogue.set_epoch(topic, 0, 2)
    store.default.catalogue.version += 100
    store.default.catalogue.confidence.lose_track()
    await store.default.catalogue.load()
    await other.default.catalogue.refresh()
    for catalogue in (store.default.catalogue, other.default.catalogue):
        assert catalogue.by_name["orders"].epochs == {0: 2}
        assert catalogue.by_name["orders"].partitions == 3
