"""Two writers that each believe to lead a partition: no offset twice, no gap, no record lost."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from itertools import pairwise

from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from tests.store.conftest import OpenStore
from tests.store.produced import assert_dense, produce, records_in, same_partition, stored, values
from tests.store.servers import Valkey

# A broker's writer in a process of its own: waits for a line, appends at full speed, says what it was told.
WRITER = """
import asyncio, json, sys
import uvloop
from headrace.store.redis.address import parse_address
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.store import Store
from tests.store.produced import produce

async def main(url, name, number, count):
    store = Store(parse_address(url), node_at(number, "127.0.0.1", 9000 + number), StoreOptions())
    await store.start()
    partition = await store.default.partition(await store.default.catalogue.find("orders"), 0)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    told, waiting = {}, set()
    async def one(n):
        told[f"{name}{n}"] = (await produce(partition, f"{name}{n}".encode())).base_offset
    for n in range(count):
        waiting.add(asyncio.create_task(one(n)))
        if len(waiting) >= 8:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*waiting)
    await store.close()
    print(json.dumps(told), flush=True)

uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


async def run(partition: LogPartition, name: bytes, number: int) -> dict[bytes, int]:
    """Appends one after the other, a few at once; what each was told."""
    told: dict[bytes, int] = {}

    async def some(first: int) -> None:
        for n in range(first, number, 4):
            told[b"%b%d" % (name, n)] = (await produce(partition, b"%b%d" % (name, n))).base_offset

    await asyncio.gather(*(some(first) for first in range(4)))
    return told


async def test_two_stores_at_full_speed_share_a_partition(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    other = await same_partition(await open_store(), partition)
    told: dict[bytes, int] = {}
    for answers in await asyncio.gather(run(partition, b"a", 400), run(other, b"b", 400)):
        told |= answers
    records = stored(valkey, partition)
    assert_dense(records)
    assert {record.value or b"": record.offset for record in records} == told
    assert len(records) == 800
    await asyncio.gather(partition.confirm(), other.confirm())
    for one in (partition, other):
        one.doubt()
        await one.confirm()
        assert (one.end, one.index.entries) == (800, valkey.ask("XLEN", partition.keys.log))
    assert partition.index.size_bytes == other.index.size_bytes


async def test_both_stores_read_the_same_from_their_caches(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    other = await same_partition(await open_store(), partition)
    await asyncio.gather(run(partition, b"a", 100), run(other, b"b", 100))
    for one in (partition, other):
        one.doubt()
        await one.confirm()
        taken = one.read_cached(0, 1 << 30, True)
        assert taken is not None
        assert records_in(taken) == stored(valkey, partition)


async def test_two_processes_at_full_speed_share_a_partition(valkey: Valkey, partition: LogPartition) -> None:
    count = 1500
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, valkey.url, name, str(number), str(count),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 22,
        )
        for number, name in ((11, "a"), (12, "b"))
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert await writer.stdout.readline() == b"ready\n"
    told: dict[str, int] = {}
    for answers in await asyncio.gather(*(writer.communicate(b"go\n") for writer in writers)):
        told |= json.loads(answers[0])
    records = stored(valkey, partition)
    assert_dense(records)
    assert {(record.value or b"").decode(): record.offset for record in records} == told
    assert len(records) == 2 * count
    names = [(record.value or b"")[:1] for record in records]
    assert sum(this != following for this, following in pairwise(names)) > 10


async def test_a_batch_sent_to_both_writers_is_stored_once(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    other = await same_partition(await open_store(), partition)
    for n in range(60):
        answers = await asyncio.gather(
            produce(partition, b"%d" % n, producer=7, sequence=n), produce(other, b"%d" % n, producer=7, sequence=n)
        )
        assert {answer.base_offset for answer in answers} == {n}
        assert Counter(answer.duplicate for answer in answers) == {False: 1, True: 1}
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(60)]


async def test_a_producer_that_moves_from_one_writer_to_the_other_keeps_its_sequence(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    other = await same_partition(await open_store(), partition)
    for n in range(20):
        assert await produce((partition, other)[n % 2], b"%d" % n, producer=7, sequence=n) == Appended(n)
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(20)]
