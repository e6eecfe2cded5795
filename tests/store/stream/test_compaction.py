"""Compaction of a stream keeps the last record of each key, by Kafka's rules, and gives the memory back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from headrace.store.redis.errors import PartitionGone, StoreAway
from headrace.store.stream.compacting.compaction import MOST_LEFTOVERS
from headrace.store.stream.ids import StreamId
from tests.store.compacting import META, STREAM, Bench, bench_on, compaction_policy
from tests.store.conftest import StartValkey
from tests.store.produced import until

ALWAYS = compaction_policy(dirty_ratio=0.0)
HOUR_MS = 3_600_000


@pytest.fixture
async def bench(start_valkey: StartValkey) -> AsyncIterator[Bench]:
    async with bench_on(start_valkey(appendonly=False)) as bench:
        yield bench


async def write(bench: Bench, *keys: str, first: int = 1) -> None:
    """One record per key at ids 1-0, 2-0, ...; a capital is a tombstone, a dot has no key."""
    for at, key in enumerate(keys, first):
        if key == ".":
            await bench.add(f"{at}-0", value=f"v{at}")
        elif key.isupper():
            await bench.add(f"{at}-0", key=key.lower())
        else:
            await bench.add(f"{at}-0", key=key, value=f"v{at}")


async def test_the_last_record_of_each_key_stays_with_its_id_and_fields(bench: Bench) -> None:
    await write(bench, *"abcabaddd")
    compacted = await bench.compaction().run(ALWAYS)
    assert await bench.rows() == [
        ("3-0", [b"key", b"c", b"value", b"v3"]),
        ("5-0", [b"key", b"b", b"value", b"v5"]),
        ("6-0", [b"key", b"a", b"value", b"v6"]),
        ("9-0", [b"key", b"d", b"value", b"v9"]),
    ]
    assert (compacted.looked_at, compacted.removed) == (9, 5)


async def test_a_second_compaction_looks_at_new_keys_and_removes_old_records_of_theirs(bench: Bench) -> None:
    await write(bench, *"abc")
    await bench.compaction().run(ALWAYS)
    await write(bench, *"bd", first=4)
    await bench.compaction().run(ALWAYS)
    assert await bench.ids() == ["1-0", "3-0", "4-0", "5-0"]


async def test_long_keys_that_begin_alike_are_told_apart(bench: Bench) -> None:
    for at, key in enumerate(("k" * 100 + "a", "k" * 100 + "b", "k" * 100 + "a"), 1):
        await bench.add(f"{at}-0", key=key, value="v")
    await bench.compaction().run(ALWAYS)
    assert await bench.ids() == ["2-0", "3-0"]


async def test_nothing_is_removed_on_a_server_that_may_lack_what_was_read(start_valkey: StartValkey) -> None:
    """The newest record of a key may be lost with the server that had it: then the one before it is the last."""
    valkey = start_valkey()
    async with bench_on(valkey) as bench:
        await write(bench, *"abcd")
        checkpoint, rests = valkey.checkpoint(), count(1)
        await write(bench, *"abcdef", first=5)

        async def go_back_once_all_keys_are_noted(_: float) -> None:
            if next(rests) == 5:
                links = (bench.link, bench.reads)
                before = [link.timeline for link in links]
                valkey.go_back_to(checkpoint)
                await until(lambda: all(link.timeline > at for link, at in zip(links, before, strict=True)))
                await until(lambda: all(link.is_up for link in links))

        with pytest.raises(StoreAway, match="another server"):
            await bench.compaction(entries=2, on_rest=go_back_once_all_keys_are_noted).run(ALWAYS)
        assert next(rests) > 5
        assert await bench.ids() == ["1-0", "2-0", "3-0", "4-0"]
        await bench.compaction().run(ALWAYS)
        assert await bench.ids() == ["1-0", "2-0", "3-0", "4-0"]


async def test_entries_without_a_key_stay(bench: Bench) -> None:
    await write(bench, *"a.a.a")
    await bench.add("6-0", temperature="21")
    await bench.add("7-0", temperature="22")
    await bench.compaction().run(ALWAYS)
    assert await bench.ids() == ["2-0", "4-0", "5-0", "6-0", "7-0"]


async def test_an_entry_with_other_fields_has_its_key_and_is_no_tombstone(bench: Bench) -> None:
    await bench.add("1-0", key="a", value="v")
    await bench.add("2-0", key="a", temperature="21")
    await write(bench, "b", first=3)
    at_once = compaction_policy(dirty_ratio=0.0, delete_retention_ms=0)
    for _ in range(3):
        bench.clock.now_ms += 10
        await bench.compaction().run(at_once)
    assert await bench.ids() == ["2-0", "3-0"]


async def test_an_entry_that_kafka_does_not_see_replaces_nothing(bench: Bench) -> None:
    await bench.add("1-0", key="a", value="v")
    await bench.add("2-0", key="a", temperature="21")
    await write(bench, "b", first=3)
    await bench.compaction(skips_foreign=True).run(ALWAYS)
    assert await bench.ids() == ["1-0", "2-0", "3-0"]


async def test_a_tombstone_goes_after_its_retention_counted_from_its_first_compaction(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.0, delete_retention_ms=HOUR_MS)
    await write(bench, *"aAb")
    bench.clock.now_ms += 10 * HOUR_MS
    await bench.compaction().run(policy)
    assert await bench.ids() == ["2-0", "3-0"]
    bench.clock.now_ms += HOUR_MS - 1
    assert not await bench.compaction().is_due(policy)
    await bench.compaction().run(policy)
    assert await bench.ids() == ["2-0", "3-0"]
    bench.clock.now_ms += HOUR_MS // 8
    assert await bench.compaction().is_due(policy)
    await bench.compaction().run(policy)
    assert await bench.ids() == ["3-0"]
    assert not await bench.compaction().is_due(policy)


async def test_frequent_compactions_do_not_keep_tombstones_for_ever(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.0, delete_retention_ms=HOUR_MS)
    await write(bench, *"aA")
    for at in range(3, 80):
        bench.clock.now_ms += 60_000
        await write(bench, "b", first=at)
        await bench.compaction().run(policy)
    assert await bench.ids() == ["79-0"]


async def test_the_newest_entry_stays_even_if_it_is_an_old_tombstone(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.0, delete_retention_ms=0)
    await write(bench, *"aA")
    for _ in range(3):
        bench.clock.now_ms += HOUR_MS
        await bench.compaction().run(policy)
    assert await bench.ids() == ["2-0"]


async def test_records_younger_than_the_shortest_lag_are_not_compacted(bench: Bench) -> None:
    bench.clock.now_ms = 10
    await write(bench, *"aaaaaaaaab")
    await bench.compaction().run(compaction_policy(min_lag_ms=5))
    assert await bench.ids() == ["5-0", "6-0", "7-0", "8-0", "9-0", "10-0"]


async def test_entries_whose_offsets_are_not_known_yet_are_not_touched(bench: Bench) -> None:
    await write(bench, *"aaaaab")
    await bench.compaction().run(ALWAYS, known=StreamId(3, 0))
    assert await bench.ids() == ["3-0", "4-0", "5-0", "6-0"]


async def test_it_is_due_when_enough_is_new(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.5)
    assert not await bench.compaction().is_due(policy)
    await write(bench, *"abcd")
    assert await bench.compaction().is_due(policy)
    await bench.compaction().run(policy)
    assert not await bench.compaction().is_due(policy)
    await write(bench, *"abcd", first=5)
    assert not await bench.compaction().is_due(policy)
    await write(bench, "a", first=9)
    assert await bench.compaction().is_due(policy)


async def test_it_is_due_when_something_has_waited_for_the_longest_lag(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.9, max_lag_ms=HOUR_MS)
    await write(bench, *"abcdefgh")
    await bench.compaction().run(policy)
    now_ms = bench.clock.now_ms
    await bench.add(f"{now_ms}-0", key="a", value="v")
    assert not await bench.compaction().is_due(policy)
    bench.clock.now_ms += HOUR_MS + 1
    assert await bench.compaction().is_due(policy)


async def test_it_is_not_due_while_what_is_new_is_too_young(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.2, min_lag_ms=1000)
    bench.clock.now_ms = 10_000
    for at in range(100):
        await bench.add(f"{9_100 + at}-0", key="a", value="v")
    assert not await bench.compaction().is_due(policy)
    bench.clock.now_ms = 10_110
    assert await bench.compaction().is_due(policy)


async def test_trimming_does_not_hide_what_is_new(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.5)
    await write(bench, *"abcdefgh")
    if (await bench.counters())[b"entries-added"] is None:
        pytest.skip("Redis before 7 does not count what was added: there it comes later")
    await bench.compaction().run(policy)
    await bench.link.call("XTRIM", bench.stream, "MINID", "=", "8-0")
    await write(bench, *"hh", first=9)
    assert await bench.compaction().is_due(policy)


async def test_a_stream_that_is_gone_stays_gone(bench: Bench) -> None:
    await bench.compaction().run(ALWAYS)
    assert not await bench.compaction().is_due(ALWAYS)
    assert bench.server.keys_with("orders") == {META}


async def test_a_topic_that_is_deleted_meanwhile_is_not_brought_back(bench: Bench) -> None:
    await write(bench, *"aab")
    await bench.link.call("DEL", bench.meta)
    with pytest.raises(PartitionGone):
        await bench.compaction().run(ALWAYS)
    assert bench.server.keys_with("orders") == {STREAM}


async def test_pending_entries_stay_until_they_are_acknowledged(bench: Bench) -> None:
    await write(bench, *"aab")
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "0")
    await bench.link.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", bench.stream, ">")
    await bench.compaction().run(ALWAYS)
    assert await bench.ids() == ["1-0", "2-0", "3-0"]
    held = await bench.link.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", bench.stream, "0")
    assert held[0][1] == [[b"1-0", [b"key", b"a", b"value", b"v1"]]]
    await bench.link.call("XACK", bench.stream, "g", "1-0")
    await bench.compaction().run(ALWAYS)
    assert await bench.ids() == ["2-0", "3-0"]


async def test_a_tombstone_outlives_the_pending_record_that_it_deletes(bench: Bench) -> None:
    policy = compaction_policy(dirty_ratio=0.0, delete_retention_ms=0)
    await write(bench, *"aAb")
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "0")
    await bench.link.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", bench.stream, ">")
    for _ in range(3):
        bench.clock.now_ms += HOUR_MS
        await bench.compaction().run(policy)
    assert await bench.ids() == ["1-0", "2-0", "3-0"]
    await bench.link.call("XACK", bench.stream, "g", "1-0")
    for _ in range(2):
        bench.clock.now_ms += HOUR_MS
        await bench.compaction().run(policy)
    assert await bench.ids() == ["3-0"]


async def test_more_pending_entries_than_are_noted_go_all_the_same_once_acknowledged(bench: Bench) -> None:
    entries = MOST_LEFTOVERS + 1000
    for at in range(1, entries + 1):
        bench.link.send("XADD", bench.stream, f"{at}-0", "key", "a", "value", "v")
    await write(bench, *"ab", first=entries + 1)
    await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "0")
    await bench.link.call("XREADGROUP", "GROUP", "g", "c", "COUNT", entries, "STREAMS", bench.stream, ">")
    await bench.compaction().run(ALWAYS)
    assert len(await bench.ids()) == entries + 2
    await bench.link.call("XACK", bench.stream, "g", *(f"{at}-0" for at in range(1, entries + 1)))
    await bench.compaction().run(ALWAYS)
    assert await bench.ids() == [f"{entries + 1}-0", f"{entries + 2}-0"]


# Memory and cost.

SHAPES = {
    "many updates of few keys": lambda n: f"k{n % 20}",
    "3 in 100 stay, evenly": lambda n: f"k{n}" if n % 33 == 0 else f"again{n % 3}",
    "a run of old ones at the front": lambda n: "old" if n < 15_000 else f"k{n}",
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_memory_is_that_of_the_records_that_stay(bench: Bench, shape: str) -> None:
    for n in range(20_000):
        bench.link.send("XADD", bench.stream, f"{n + 1}-0", "key", SHAPES[shape](n), "value", "v" * 100)
    await bench.link.call("PING")
    compacted = await bench.compaction().run(ALWAYS)
    left = await bench.rows()
    assert len(left) == 20_000 - compacted.removed == len({SHAPES[shape](n) for n in range(20_000)})
    for entry_id, fields in left:
        bench.link.send("XADD", "{orders:0}", entry_id, *fields)
    assert await bench.memory_bytes() <= 2 * await bench.memory_bytes("{orders:0}")
    assert bench.server.keys_with("default:{orders") == {STREAM, META}


async def test_the_work_is_done_in_small_steps_with_rests(bench: Bench) -> None:
    rests = 0

    async def rest(_: float) -> None:
        nonlocal rests
        rests += 1

    for n in range(5_000):
        bench.link.send("XADD", bench.stream, f"{n + 1}-0", "key", f"k{n if n % 33 == 0 else 0}", "value", "v" * 100)
    await bench.link.call("PING")
    bench.server.ask("CONFIG", "RESETSTAT")
    compacted = await bench.compaction(entries=100, on_rest=rest).run(ALWAYS)
    assert compacted.is_repacked
    counts = bench.server.command_counts()
    steps = 2 * (5_000 // 100 + 3) + 5
    assert 100 <= rests <= steps
    assert counts["xrange"] <= steps + 5
    assert counts["evalsha"] + counts.get("eval", 0) <= 5_000 // 100 + 10


async def test_large_entries_are_read_a_few_at_a_time(bench: Bench) -> None:
    for n in range(60):
        await bench.add(f"{n + 1}-0", key="a", value="v" * 200_000)
    bench.server.ask("CONFIG", "RESETSTAT")
    await bench.compaction().run(ALWAYS)
    assert await bench.ids() == ["60-0"]
    assert bench.server.command_counts()["xrange"] > 60
