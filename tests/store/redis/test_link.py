"""The connection to Redis: replies in order, honest about what was sent, back by itself."""

from __future__ import annotations

import asyncio
import logging
from itertools import cycle
from pathlib import Path

import pytest

from headrace.store.embedded.ports import HOST, free_ports
from headrace.store.embedded.trial import TrialServer
from headrace.store.redis.address import Address, parse_address
from headrace.store.redis.errors import OutcomeUnknown, RedisError, StoreAway
from headrace.store.redis.link import RedisLink
from headrace.store.redis.wire import RedisWire
from headrace.store.store import Store
from tests.relays import network
from tests.replicated import replicated
from tests.store.conftest import OpenStore
from tests.store.produced import until
from tests.store.proxy import Proxy
from tests.store.servers import Valkey
from tests.stores import of_one_server

pytestmark = of_one_server  # a link has one server, and knows nothing of slots


async def test_replies_come_in_the_order_of_the_commands(store: Store) -> None:
    replies = await asyncio.gather(*(store.link.call("ECHO", b"%d" % n) for n in range(500)))
    assert replies == [b"%d" % n for n in range(500)]


async def test_a_caller_that_went_away_does_not_shift_the_replies(store: Store) -> None:
    store.link.send("ECHO", "a").cancel()
    assert await store.link.call("ECHO", "b") == b"b"


async def test_a_pipeline_is_answered_as_a_whole_and_raises_the_first_failure(store: Store) -> None:
    assert await store.link.pipeline(("SET", "a", 1), ("GET", "a")) == [b"OK", b"1"]
    with pytest.raises(RedisError):
        await store.link.pipeline(("SET", "a", 2), ("LPUSH", "a", 1), ("SET", "a", 3))
    assert await store.link.call("GET", "a") == b"3"


async def test_a_transaction_happens_whole_and_raises_what_was_refused(store: Store) -> None:
    await store.link.call("SET", "a", 1)
    assert await store.link.transaction(("INCR", "a"), ("GET", "a")) == [2, b"2"]
    with pytest.raises(RedisError) as raised:
        await store.link.transaction(("INCR", "a"), ("LPUSH", "a", 1))
    assert raised.value.kind == "WRONGTYPE"
    with pytest.raises(RedisError, match="unknown command"):
        await store.link.transaction(("INCR", "a"), ("NOSUCHCOMMAND",))
    assert await store.link.call("GET", "a") == b"3"


async def test_a_command_that_was_sent_is_unknown_and_one_that_was_not_is_away(valkey: Valkey, store: Store) -> None:
    valkey.pause()
    sent = store.link.send("PING")
    store.link.drop("the test cuts it")
    with pytest.raises(StoreAway):
        store.link.send("PING")
    with pytest.raises(OutcomeUnknown):
        await sent
    assert not store.link.is_up
    valkey.resume()
    await store.link.wait_up(10)


async def test_a_server_that_does_not_answer_in_time_is_given_up(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(timeout_ms=200)
    valkey.pause()
    with pytest.raises(OutcomeUnknown, match="no reply"):
        await store.link.call("PING")
    valkey.resume()
    await until(lambda: store.link.is_up)
    assert await store.link.call("PING") == b"PONG"


async def test_a_server_is_given_up_when_two_looks_find_that_nothing_arrived() -> None:
    """Replies that wait behind large ones are late, yet something arrives; what arrived may not have been read yet."""
    wire = RedisWire(RedisLink(parse_address("unix:///nowhere"), "commands"))
    now = wire.loop.time()
    wire._waiting.append((wire.loop.create_future(), None, now - 60))

    def is_given_up_at_a_look(last_heard: float) -> bool:
        wire._last_heard = last_heard
        wire.check_overdue(30)
        return wire._is_aborted

    assert [is_given_up_at_a_look(now) for _ in range(3)] == [False] * 3
    assert [is_given_up_at_a_look(now - 60), is_given_up_at_a_look(now)] == [False, False]
    assert [is_given_up_at_a_look(now - 60), is_given_up_at_a_look(now - 60)] == [False, True]


async def test_each_connection_counts_and_only_another_server_is_another_timeline(valkey: Valkey, store: Store) -> None:
    link = store.link
    assert (link.generation, link.timeline) == (1, 0)
    link.drop("the test cuts it")
    await until(lambda: link.generation == 2)
    assert link.timeline == 0
    valkey.restart()
    await until(lambda: link.generation == 3)
    assert link.timeline == 1


async def test_bytes_that_are_no_reply_end_the_connection(store: Store) -> None:
    generation = store.link.generation
    wire = store.topology.shards[0].link.wire
    assert wire is not None
    wire.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await until(lambda: store.link.generation > generation)


async def test_large_values_travel_both_ways(store: Store) -> None:
    value = bytes(range(256)) * (64 << 10)
    await store.link.call("SET", "large", value)
    assert await store.reads.call("GET", "large") == value


async def test_a_script_is_sent_again_to_a_server_that_forgot_it(valkey: Valkey, store: Store) -> None:
    await store.nodes.renew()
    valkey.ask("SCRIPT", "FLUSH")
    await store.nodes.renew()
    assert store.nodes.lease_is_valid


async def test_a_connection_that_breaks_at_once_is_not_made_in_a_hurry(
    proxy: Proxy, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(via=proxy)
    proxy.is_open = False
    proxy.cut()
    with caplog.at_level(logging.WARNING, logger="headrace.store.redis.link"):
        await until(lambda: not store.link.is_up)
        link = store.topology.shards[0].link
        await until(lambda: "closed" in link._why_away or "connection" in link._why_away)
    assert len(caplog.records) <= 4
    with pytest.raises(StoreAway) as raised:
        await store.link.call("PING")
    assert str(raised.value).count("the store is unavailable") == 1


async def test_of_several_servers_that_are_gone_each_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    places = cycle([parse_address(f"redis://{HOST}:{port}") for port in free_ports(2)])
    asked = 0

    async def locate() -> Address:
        nonlocal asked
        asked += 1
        return next(places)

    link = RedisLink(next(places), "listener", locate=locate)
    link.generation = 1  # it was up before
    with caplog.at_level(logging.WARNING, logger="headrace.store.redis.link"):
        link.start_soon()
        try:
            await until(lambda: asked > 6)
        finally:
            await link.close()
    assert len(caplog.records) == 2


async def test_a_link_that_only_listens_notices_that_its_server_vanished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends nothing, so it would be told nothing, ever."""
    monkeypatch.setattr("headrace.store.redis.wire._LISTENER_EVERY_S", 0.05)
    with replicated(tmp_path / "servers", replicas=0) as servers, network() as net:
        (port,) = free_ports(1)
        relay = net.relay((HOST, port), (HOST, servers.primary.port))
        heard: list[bytes] = []
        link = RedisLink(parse_address(f"redis://{HOST}:{port}"), "listener", 200)
        link.listen_to("news", heard.append)
        try:
            await link.start()
            await until(lambda: servers.primary.ask("PUBLISH", "news", "first") > 0 and b"first" in heard)
            relay.lose_track()
            await until(lambda: servers.primary.ask("PUBLISH", "news", "second") > 0 and b"second" in heard)
            assert link.generation > 1
            generation, asked = link.generation, _pings(servers.primary)
            await until(lambda: _pings(servers.primary) > asked + 10)
            assert link.generation == generation, "a server that answers is not given up"
        finally:
            await link.close()


def _pings(server: TrialServer) -> int:
    return int(server.info("commandstats").get("cmdstat_ping", "calls=0").split(",")[0].removeprefix("calls="))


async def test_a_closed_link_stays_closed(store: Store) -> None:
    await store.topology.close()
    with pytest.raises(StoreAway):
        await store.link.call("PING")
    assert not store.link.is_up


@pytest.mark.parametrize("database", [0, 3])
async def test_the_database_of_the_address_is_used(valkey: Valkey, open_store: OpenStore, database: int) -> None:
    store = await open_store(url=f"{valkey.url}?db={database}")
    await store.link.call("SET", "here", 1)
    with valkey.client() as client:
        client.execute_command("SELECT", database)
        assert client.execute_command("EXISTS", "here") == 1


async def test_whoever_waits_for_a_connection_can_be_cancelled_as_it_comes(store: Store) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets a cancellation at that moment, and closing a store waits forever."""
    for turns in range(6):
        store.link.drop("the test cuts it")
        await until(lambda: not store.link.is_up)
        waiting = [asyncio.create_task(store.link.wait_up(10)) for _ in range(3)]
        await store.link.wait_up(10)
        for _ in range(turns):
            await asyncio.sleep(0)
        was_cancelled = [task.cancel() for task in waiting]
        await asyncio.wait(waiting)
        assert [task.cancelled() for task in waiting] == was_cancelled
