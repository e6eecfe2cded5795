"""What Redis refuses, the Kafka error that clients get for it, and that it passes by itself when Redis allows it."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.redis.errors import KAFKA_ERROR_BY_KIND, OutcomeUnknown, RedisError, StoreAway, StoreRefused
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.broker_process import free_port
from tests.store.conftest import OpenStore, StartValkey
from tests.store.produced import log_partition, produce, stored, until, values
from tests.store.servers import Valkey
from tests.stores import of_one_server

pytestmark = of_one_server


async def code_of(partition: LogPartition, value: bytes = b"x", timeout_s: float = 0.3) -> int:
    """The error that a produce is answered with."""
    with pytest.raises(KafkaError) as raised:
        await produce(partition, value, timeout_s=timeout_s)
    return raised.value.code


def test_every_kind_of_refusal_has_its_error() -> None:
    codes = {kind: RedisError(f"{kind} some words of Redis").code for kind in KAFKA_ERROR_BY_KIND}
    assert codes == KAFKA_ERROR_BY_KIND
    assert RedisError("ERR whatever").code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert StoreAway("").code == ErrorCode.KAFKA_STORAGE_ERROR
    assert OutcomeUnknown("").code == ErrorCode.REQUEST_TIMED_OUT
    retriable = {kind for kind, code in codes.items() if code in (56, 19)}
    assert retriable == codes.keys() - {"NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE"}


async def test_a_full_memory_refuses_produces_and_takes_them_again_when_there_is_room(
    valkey: Valkey, store: Store, partition: LogPartition, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.ask("CONFIG", "SET", "maxmemory", int(valkey.ask("INFO", "memory")["used_memory"]) // 2)
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            assert await code_of(partition) == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.topology.shards[0].memory.is_full
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    valkey.ask("CONFIG", "SET", "maxmemory", "0")
    assert await produce(partition, b"x") == Appended(0)
    await until(lambda: not store.topology.shards[0].memory.is_full)


async def test_the_mark_is_below_the_servers_limit(valkey: Valkey, store: Store) -> None:
    valkey.ask("SET", "filler", b"x" * (20 << 20))
    used = int(valkey.ask("INFO", "memory")["used_memory"])
    valkey.ask("CONFIG", "SET", "maxmemory", used * 100 // 95)
    await store.topology.shards[0].memory.look()
    assert store.topology.shards[0].memory.is_full
    await store.nodes.renew()
    await store.link.call("SET", "still", "works")
    valkey.ask("CONFIG", "SET", "maxmemory", used * 2)
    await store.topology.shards[0].memory.look()
    assert not store.topology.shards[0].memory.is_full


async def test_a_server_that_cannot_save_is_a_storage_error(
    start_valkey: StartValkey, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_valkey(appendonly=False)
    server.ask("CONFIG", "SET", "save", "3600 1")
    store = await open_store(url=server.url)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    (server.home / "data" / "dump.rdb" / "in the way").mkdir(parents=True)
    server.ask("BGSAVE")
    await until(lambda: server.ask("INFO", "persistence")["rdb_last_bgsave_status"] == "err")
    with caplog.at_level(logging.ERROR):
        assert {await code_of(partition) for _ in range(5)} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert len([record for record in caplog.records if record.name == "headrace.store.store"]) <= 2
    server.ask("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert await produce(partition, b"x") == Appended(0)


async def test_a_command_that_the_user_may_not_run_is_an_authorization_error(
    valkey: Valkey, partition: LogPartition
) -> None:
    valkey.ask("ACL", "SETUSER", "default", "-xadd")
    assert await code_of(partition) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    valkey.ask("ACL", "SETUSER", "default", "+xadd")
    assert await produce(partition, b"x") == Appended(0)


async def test_without_or_with_a_wrong_password_the_start_says_so(
    start_valkey: StartValkey, open_store: OpenStore
) -> None:
    server = start_valkey(requirepass="secret")
    for user in ("", ":wrong@"):
        with pytest.raises(RedisError) as raised:
            await open_store(url=server.url.replace("unix://", f"unix://{user}"))
        assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    store = await open_store(url=server.url.replace("unix://", "unix://:secret@"))
    assert await store.link.call("PING") == b"PONG"


async def test_a_key_of_another_type_is_not_ours_to_mend(valkey: Valkey, partition: LogPartition) -> None:
    await produce(partition, b"a")
    valkey.ask("SET", partition.keys.log, "something else")
    assert await code_of(partition) == ErrorCode.UNKNOWN_SERVER_ERROR
    valkey.ask("DEL", partition.keys.log)
    assert await produce(partition, b"b") == Appended(1)
    assert values(stored(valkey, partition)) == [b"a", b"b"]


async def test_too_few_replicas_is_kafkas_own_error(valkey: Valkey, partition: LogPartition) -> None:
    valkey.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    assert await code_of(partition) == ErrorCode.NOT_ENOUGH_REPLICAS
    valkey.ask("CONFIG", "SET", "min-replicas-to-write", "0")
    assert await produce(partition, b"x") == Appended(0)


async def test_a_server_that_became_a_replica_is_away_until_it_is_promoted(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    await produce(partition, b"a")
    valkey.ask("REPLICAOF", "127.0.0.1", "1")
    generation = store.link.generation
    assert await code_of(partition) in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
    assert not store.link.is_up
    assert store.link.generation == generation
    waiting = produce(partition, b"b")
    valkey.ask("REPLICAOF", "NO", "ONE")
    assert await waiting == Appended(1)
    assert store.link.timeline == 1
    assert values(stored(valkey, partition)) == [b"a", b"b"]


async def test_a_server_that_is_busy_with_a_script_is_waited_for(valkey: Valkey, partition: LogPartition) -> None:
    valkey.ask("CONFIG", "SET", "lua-time-limit", "1")

    def spin() -> None:
        with valkey.client() as client, pytest.raises(Exception, match="killed"):
            client.execute_command("EVAL", "while true do end", 0)

    thread = threading.Thread(target=spin)
    thread.start()
    await until(lambda: "BUSY" in refusal(valkey))
    waiting = produce(partition, b"x")
    await asyncio.sleep(0)  # so that it is sent without the next one
    assert await code_of(partition, b"gives up") in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
    valkey.ask("SCRIPT", "KILL")
    assert await waiting == Appended(0)
    thread.join()
    assert values(stored(valkey, partition)) == [b"x"]


def refusal(valkey: Valkey) -> str:
    try:
        valkey.ask("GET", "x")
    except Exception as error:
        return str(error)
    return ""


async def test_a_server_that_loads_its_log_is_waited_for(valkey: Valkey, store: Store, partition: LogPartition) -> None:
    await asyncio.gather(*(produce(partition, b"x" * 1000) for n in range(300)))
    with valkey.client() as client:  # so many commands that loading them takes a while
        pipe = client.pipeline(transaction=False)
        for n in range(10_000):
            pipe.set("filler", n)
        pipe.execute()
    valkey.kill()
    valkey.set_options(key_load_delay=100)
    valkey.start(wait=False)
    await until(lambda: "loading" in store.topology.shards[0].link._why_away)
    assert await code_of(partition) == ErrorCode.KAFKA_STORAGE_ERROR
    assert not store.link.is_up
    assert await produce(partition, b"x") == Appended(300)


async def test_a_cluster_without_slots_is_a_storage_error(start_valkey: StartValkey, open_store: OpenStore) -> None:
    port = free_port()
    # The bus port is 10000 more unless it is named, and another server may have that.
    start_valkey(port=port, cluster_enabled="yes", cluster_config_file="nodes.conf", cluster_port=free_port())
    with pytest.raises(StoreAway, match="no slots are assigned") as raised:
        await open_store(url=f"redis+cluster://127.0.0.1:{port}")
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("maxmemory", ["100mb", "0"])
async def test_a_server_that_evicts_is_refused_unless_that_is_accepted(
    start_valkey: StartValkey, open_store: OpenStore, maxmemory: str
) -> None:
    """Without a limit too: it would evict from the moment that somebody sets one."""
    server = start_valkey(maxmemory=maxmemory, maxmemory_policy="allkeys-lru")
    with pytest.raises(StoreRefused, match="allkeys-lru"):
        await open_store(url=server.url)
    await open_store(url=server.url, allow_eviction=True)


async def test_a_policy_that_is_changed_later_is_said_once(
    valkey: Valkey, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "evict" in record.getMessage()]

    caplog.set_level("INFO")
    valkey.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await until(lambda: len(told()) == 1)
    assert "noeviction" in told()[0]
    valkey.ask("CONFIG", "RESETSTAT")
    await until(lambda: valkey.command_counts().get("info", 0) > 3)
    assert len(told()) == 1
    valkey.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await until(lambda: len(told()) == 2)


async def test_while_redis_is_away_errors_come_and_it_recovers_by_itself(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    await produce(partition, b"a")
    valkey.kill()
    assert await code_of(partition) in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
    for answer in (partition.confirm(), partition.read(0, 1000, True)):
        with pytest.raises(KafkaError) as raised:
            await answer
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    waiting = produce(partition, b"b")
    valkey.start()
    assert await waiting == Appended(1)
