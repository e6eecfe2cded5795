"""A copy takes a stream's place, and nobody who reads, writes or waits can tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.store.redis.link import RedisLink
from headrace.store.stream.repacking import MOST_PENDING
from tests.store.compacting import META, STREAM, Bench, bench_on, compaction_policy
from tests.store.conftest import StartValkey
from tests.store.produced import until
from tests.store.servers import Valkey
from tests.stores import of_one_server


@pytest.fixture
async def bench(start_valkey: StartValkey) -> AsyncIterator[Bench]:
    async with bench_on(start_valkey(appendonly=False)) as bench:
        yield bench


async def fill(bench: Bench, entries: int, first: int = 1) -> None:
    for at in range(first, first + entries):
        bench.link.send("XADD", bench.stream, f"{at}-0", "key", f"k{at}", "value", "v" * 50)
    await bench.link.call("PING")


async def give(bench: Bench, group: str, consumer: str, count: int) -> None:
    await bench.link.call("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", bench.stream, ">")


async def test_entries_groups_consumers_pending_and_counters_are_as_before(bench: Bench) -> None:
    await fill(bench, 300)
    for group, start in (("g", "0"), ("h", "17-0"), ("kafka:app", "200-0")):
        await bench.link.call("XGROUP", "CREATE", bench.stream, group, start)
    await bench.link.call("XGROUP", "CREATECONSUMER", bench.stream, "g", "idle")
    await give(bench, "g", "one", 30)
    await give(bench, "g", "two", 20)
    await give(bench, "h", "one", 5)
    await bench.link.call("XCLAIM", bench.stream, "g", "two", 0, "3-0", "4-0")
    await bench.link.call("XACK", bench.stream, "g", *(f"{at}-0" for at in range(10, 20)))
    await bench.link.call("XDEL", bench.stream, *(f"{at}-0" for at in range(60, 280)), "300-0")
    before = await bench.rows(), await bench.groups(), await bench.counters()
    assert (await bench.repacking(entries=7).run()).is_done
    assert (await bench.rows(), await bench.groups(), await bench.counters()) == before
    assert await bench.link.call("PTTL", bench.stream) == -1


async def test_idle_times_of_pending_entries_go_on(bench: Bench) -> None:
    await fill(bench, 3)
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "0")
    await give(bench, "g", "c", 1)
    await bench.link.call("XCLAIM", bench.stream, "g", "c", 0, "1-0", "IDLE", 500_000)
    assert (await bench.repacking().run()).is_done
    [[_, _, idle_ms, _]] = await bench.link.call("XPENDING", bench.stream, "g", "-", "+", 10)
    assert 500_000 <= idle_ms < 560_000


async def test_pending_entries_that_were_deleted_stay_pending(bench: Bench) -> None:
    await fill(bench, 40)
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "0")
    await give(bench, "g", "c", 40)
    await bench.link.call("XDEL", bench.stream, "1-0", "20-0", "21-0", "40-0")
    before = await bench.rows(), await bench.groups(), await bench.counters()
    assert (await bench.repacking(entries=7).run()).is_done
    assert (await bench.rows(), await bench.groups(), await bench.counters()) == before


async def test_an_expiry_that_somebody_set_stays(bench: Bench) -> None:
    await fill(bench, 3)
    await bench.link.call("PEXPIRE", bench.stream, 1_000_000)
    assert (await bench.repacking().run()).is_done
    assert 900_000 < await bench.link.call("PTTL", bench.stream) <= 1_000_000


async def test_what_is_written_while_it_is_copied_is_not_lost(bench: Bench) -> None:
    await fill(bench, 100)
    written = 100

    async def write_more(_: float) -> None:
        nonlocal written
        if written < 400:
            await fill(bench, 2, first=written + 1)
            written += 2

    assert (await bench.repacking(entries=10, on_rest=write_more).run()).is_done
    assert await bench.ids() == [f"{at}-0" for at in range(1, written + 1)]


async def test_entries_that_are_deleted_while_it_is_copied_do_not_come_back(bench: Bench) -> None:
    await fill(bench, 100)
    rests = 0

    async def delete_one(_: float) -> None:
        nonlocal rests
        rests += 1
        if rests in (8, 14):
            await bench.link.call("XDEL", bench.stream, f"{rests}-0")
            await fill(bench, 1, first=100 + rests)  # the length alone does not tell

    assert (await bench.repacking(entries=10, on_rest=delete_one).run()).is_done
    left = {*range(1, 101), 108, 114} - {8, 14}
    assert await bench.ids() == [f"{at}-0" for at in sorted(left)]


async def test_a_stream_that_is_deleted_while_it_is_copied_stays_deleted(bench: Bench) -> None:
    await fill(bench, 100)

    async def delete(_: float) -> None:
        await bench.link.call("DEL", bench.stream)

    assert not (await bench.repacking(entries=10, on_rest=delete).run()).is_done
    assert bench.server.keys_with("orders") == {META}


async def test_a_copy_does_not_take_the_streams_place_on_another_server(start_valkey: StartValkey) -> None:
    """It may lack entries that the copy was made of, or have others."""
    async with bench_on(start_valkey()) as bench:
        await fill(bench, 30)
        before, timeline = await bench.rows(), bench.link.timeline

        async def restart_once(_: float) -> None:
            if bench.link.timeline == timeline:
                await asyncio.to_thread(bench.server.restart)
                await until(lambda: bench.link.timeline > timeline and bench.link.is_up and bench.reads.is_up)

        repacked = await bench.repacking(entries=7, on_rest=restart_once).run()
        assert (repacked.is_done, repacked.why_not) == (False, "another server answers")
        assert await bench.rows() == before
        assert bench.server.keys_with("orders") == {STREAM, META}


async def test_with_very_many_pending_entries_the_stream_is_left_as_it_is(bench: Bench) -> None:
    await fill(bench, MOST_PENDING + 1)
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "0")
    await give(bench, "g", "c", MOST_PENDING + 1)
    bench.server.ask("CONFIG", "RESETSTAT")
    repacked = await bench.repacking().run()
    assert (repacked.is_done, "pending" in repacked.why_not) == (False, True)
    assert "xadd" not in bench.server.command_counts()


async def test_a_full_store_loses_nothing(bench: Bench) -> None:
    await fill(bench, 2000)
    before = await bench.rows()
    bench.server.ask("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(Exception, match="OOM"):
        await bench.repacking().run()
    bench.server.ask("CONFIG", "SET", "maxmemory", 0)
    assert await bench.rows() == before
    assert bench.server.keys_with("orders") == {STREAM, META}


async def test_a_copy_that_was_left_behind_expires(bench: Bench) -> None:
    await fill(bench, 100)

    async def die(_: float) -> None:
        bench.link.drop("killed")
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await bench.repacking(entries=10, on_rest=die).run()
    [left] = bench.server.keys_with("copy")
    assert 0 < bench.server.ask("PTTL", left) <= 600_000
    await bench.link.wait_up(5)
    assert await bench.ids() == [f"{at}-0" for at in range(1, 101)]


# Those who wait.


async def blocked(server: Valkey, number: int) -> None:
    await until(lambda: server.ask("INFO", "clients")["blocked_clients"] == number)


@of_one_server  # who is blocked is asked of one
async def test_blocked_readers_go_on_waiting_and_get_what_comes(bench: Bench) -> None:
    await fill(bench, 100)
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "$")
    waiting = [RedisLink(bench.link.address, f"waiting {n}") for n in range(3)]
    for link in waiting:
        await link.start()
    replies = [
        waiting[0].send("XREAD", "BLOCK", 30_000, "STREAMS", bench.stream, "$"),
        waiting[1].send("XREAD", "BLOCK", 30_000, "STREAMS", bench.stream, "100-0"),
        waiting[2].send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 30_000, "STREAMS", bench.stream, ">"),
    ]
    await blocked(bench.server, 3)
    for _ in range(2):
        assert (await bench.repacking().run()).is_done
    await blocked(bench.server, 3)
    await fill(bench, 1, first=101)
    for reply in replies:
        assert [raw for raw, _ in (await reply)[0][1]] == [b"101-0"]
    for link in waiting:
        await link.close()


async def test_writers_and_groups_miss_and_repeat_nothing_while_compactions_go_on(bench: Bench) -> None:
    """Keys are never reused, so that all of them must arrive; old ones with used keys lie before them."""
    for n in range(3000):
        bench.link.send("XADD", bench.stream, "*", "key", f"old{n % 50}", "value", "v" * 50)
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "$")
    links = [RedisLink(bench.link.address, f"client {n}") for n in range(5)]
    for link in links:
        await link.start()
    writers, consumers, reader = links[:2], links[2:4], links[4]
    total = 1500
    got: list[bytes] = []
    read: list[bytes] = []

    async def write(link: RedisLink, name: str) -> None:
        for n in range(total):
            await link.call("XADD", bench.stream, "*", "key", f"{name}{n}", "value", "v")

    async def consume(link: RedisLink, name: str) -> None:
        while len(got) < 2 * total:
            rows = await _rows(link, "XREADGROUP", "GROUP", "g", name, "COUNT", 7, "BLOCK", 100, "STREAMS", STREAM, ">")
            got.extend(raw for raw, _ in rows)
            if rows:
                assert await link.call("XACK", bench.stream, "g", *(raw for raw, _ in rows)) == len(rows)

    async def follow(last: bytes) -> None:
        while len(read) < 2 * total:
            rows = await _rows(reader, "XREAD", "COUNT", 20, "BLOCK", 100, "STREAMS", STREAM, last)
            read.extend(raw for raw, _ in rows)
            last = rows[-1][0] if rows else last

    start = (await bench.reads.call("XREVRANGE", bench.stream, "+", "-", "COUNT", 1))[0][0]
    clients = asyncio.gather(
        *(write(link, f"w{n}-") for n, link in enumerate(writers)),
        *(consume(link, f"c{n}") for n, link in enumerate(consumers)),
        follow(start),
    )
    repacked = 0
    while not clients.done():
        await bench.compaction(entries=50).run(compaction_policy())
        repacked += (await bench.repacking(entries=50).run()).is_done
        await asyncio.sleep(0)
    await clients
    assert repacked > 3
    assert len(read) == len(set(read)) == 2 * total == len(got) == len(set(got))
    assert read == sorted(read, key=lambda raw: tuple(map(int, raw.split(b"-"))))
    assert set(read) == set(got)
    [(group, _, pending)] = await bench.groups()
    assert (group[b"pending"], pending) == (0, [])
    for link in links:
        await link.close()


async def _rows(link: RedisLink, *words: str | int | bytes) -> list[Any]:
    reply = await link.call(*words)
    return reply[0][1] if reply else []
