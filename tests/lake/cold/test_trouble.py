"""Tables that change, break or vanish under the reader, and readers that die: consumers are told, never misled."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.cold_log import ColdAway, Held
from headrace.lake.cold import frames, process
from headrace.lake.cold import log as cold
from headrace.lake.storage.place import Place
from tests.broker_process import wait_until
from tests.lake.cold_topic import ColdTopic, OpenCold, read_all
from tests.lake.compacting import compacted, path_of

FETCH = 1 << 20


async def test_a_table_restored_to_an_older_version_holds_what_it_held_then(
    made: ColdTopic, open_cold: OpenCold
) -> None:
    made.send([b"v"] * 30)
    table = made.archive(10, 20)
    reader = open_cold(made)
    held = await reader.held(made.partition)
    assert held is not None
    assert held.end == 20
    DeltaTable(table.place.uri).restore(1)
    restored = await reader.held(made.partition, fresh=True)
    assert restored is not None
    assert restored.end == 10
    with pytest.raises(ColdAway, match="lacks offset 15"):
        await reader.read(made.partition, 15, 20, FETCH)
    made.archive()
    assert len(await read_all(reader, made.partition, 0, 30, FETCH)) == 30


async def test_a_deleted_table_holds_nothing_and_a_replaced_one_is_noticed(
    made: ColdTopic, open_cold: OpenCold
) -> None:
    made.send([b"v"] * 20)
    table = made.archive(10, 20)
    reader = open_cold(made)
    await reader.read(made.partition, 0, 5, FETCH)
    shutil.rmtree(table.place.uri)
    with pytest.raises(ColdAway, match="no table"):
        await reader.read(made.partition, 15, 20, FETCH)
    assert await reader.held(made.partition, fresh=True) is None
    made.archive(5)
    held = await reader.held(made.partition, fresh=True)
    assert held is not None
    assert held.end == 5


async def test_files_that_are_gone_are_not_held_though_the_log_names_them(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 30)
    table = made.archive(10, 20, 30)
    reader = open_cold(made)
    first, second, third = table.coverage[0].files
    path_of(table, second).unlink()
    assert await reader.held(made.partition, fresh=True) == Held(20, 30, third.size_bytes)
    assert (await reader.read(made.partition, 5, 30, FETCH)).next_offset == 10
    with pytest.raises(ColdAway, match="lacks offset 10"):
        await reader.read(made.partition, 10, 30, FETCH)
    for gone in (first, third):
        path_of(table, gone).unlink()
    assert await reader.held(made.partition, fresh=True) is None
    assert "are lost" in (reader.reason(made.partition) or "")


async def test_a_log_that_cannot_be_read_is_not_an_empty_table(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 20)
    table = made.archive(10, 20)
    reader = open_cold(made)
    entry = Path(table.place.uri) / "_delta_log" / "00000000000000000002.json"
    content = entry.read_bytes()
    entry.write_text("nonsense")
    with pytest.raises(ColdAway, match="cannot be read"):
        await reader.held(made.partition, fresh=True)
    assert "cannot be read" in (reader.reason(made.partition) or "")
    entry.write_bytes(content)
    assert (await reader.read(made.partition, 15, 20, FETCH)).next_offset == 20


async def test_a_damaged_file_is_never_served(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([os.urandom(100) for _ in range(300)])
    table = made.archive(100, 200, 300)
    flipped, cut, _ = (path_of(table, file) for file in table.coverage[0].files)
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    cut.write_bytes(cut.read_bytes()[:-20])
    reader = open_cold(made)
    for offset in (50, 150):
        with pytest.raises(ColdAway, match="cannot be read"):
            await reader.read(made.partition, offset, 300, FETCH)
    held = await reader.held(made.partition, fresh=True)
    assert held is not None
    assert held.start == 200
    assert (await reader.read(made.partition, 250, 300, FETCH)).next_offset == 300


async def test_rows_that_are_not_in_order_or_in_another_file_are_refused(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 20)
    table = made.archive(10, 20)
    reader = open_cold(made)
    assert await reader.held(made.partition, fresh=True) is not None
    first, second = (path_of(table, file) for file in table.coverage[0].files)
    rows = pq.read_table(first)
    pq.write_table(rows.take(list(reversed(range(10)))), first)
    pq.write_table(rows, second)
    for offset in (3, 13):
        with pytest.raises(ColdAway, match="not in offset order"):
            await reader.read(made.partition, offset, 20, FETCH)


async def test_files_that_others_wrote_hold_nothing(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 20)
    table = made.archive(10, 20)
    DeltaTable(table.place.uri).optimize.compact()
    reader = open_cold(made)
    assert await reader.held(made.partition, fresh=True) is None
    assert "did not write" in (reader.reason(made.partition) or "")


async def test_a_table_with_unknown_features_is_refused(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"v"] * 3)
    table = made.archive()
    entry = Path(table.place.uri) / "_delta_log" / "00000000000000000002.json"
    entry.write_text('{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["timestampNtz"],'
                     '"writerFeatures":["timestampNtz"]}}')  # fmt: skip
    with pytest.raises(ColdAway, match="reader version 3"):
        await open_cold(made).held(made.partition)


async def test_a_consumer_reads_on_over_a_compaction(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"%d" % n for n in range(1_000)])
    table = made.archive(*range(100, 1_001, 100))
    reader = open_cold(made)
    before = await read_all(reader, made.partition, 0, 450, 2_000)
    compacted(table)
    assert before + await read_all(reader, made.partition, 450, 1_000, 2_000) == made.hot()


async def test_a_killed_reader_is_told_to_consumers_and_started_again(made: ColdTopic, open_cold: OpenCold) -> None:
    made.send([b"%d" % n * 100 for n in range(5_000)])
    made.archive(*range(500, 5_001, 500))
    reader, hot = open_cold(made), made.hot()
    await reader.check()
    first = reader.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)  # so that the kill finds both reads unanswered
    reads = [asyncio.create_task(read_all(reader, made.partition, start, 5_000, 3_000)) for start in (0, 2_500)]
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(outcome, ColdAway)
    assert await read_all(reader, made.partition, 0, 5_000, FETCH) == hot
    assert reader.pid not in (None, first)


async def test_a_reader_that_hangs_is_killed_after_a_while(
    made: ColdTopic, open_cold: OpenCold, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.send([b"v"] * 5)
    made.archive()
    reader = open_cold(made)
    assert (await reader.read(made.partition, 0, 5, FETCH)).next_offset == 5
    stopped = reader.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(cold, "ANSWER_TIMEOUT_S", 0.2)
    with pytest.raises(ColdAway, match="did not respond"):
        await reader.read(made.partition, 0, 5, FETCH)
    monkeypatch.undo()
    assert (await reader.read(made.partition, 0, 5, FETCH)).next_offset == 5


_BROKER = """
import asyncio, sys
from headrace.lake.cold.log import open_cold_log
async def main():
    reader = open_cold_log(sys.argv[1], {}, "cluster")
    await reader.check()
    print(reader.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_reader_ends_with_its_broker(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _BROKER, str(tmp_path)], stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        assert b"lake.cold.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        broker.kill()
    wait_until(lambda: not is_running(pid), f"process {pid} outlived its broker")


def is_running(pid: int) -> bool:
    try:
        return b"lake.cold.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def test_a_lake_that_is_no_folder_is_refused_with_the_reason(made: ColdTopic, open_cold: OpenCold) -> None:
    made.lake.write_text("a file")
    with pytest.raises(ColdAway, match="cannot be read"):
        await open_cold(made).check()


async def test_a_broker_that_waits_longer_is_answered_later(made: ColdTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cold_timeout_ms` above the reader's own patience: a slow lake is one that answers late, not one that is away."""
    made.send([b"v"] * 5)
    made.archive()
    monkeypatch.setattr(process, "GIVE_UP_S", 0.05)
    began, goes_on = threading.Event(), threading.Event()
    delta = Place.delta

    def slow(place: Place) -> DeltaTable:
        began.set()
        assert goes_on.wait(60)
        return delta(place)

    monkeypatch.setattr(Place, "delta", slow)
    ask = frames.AskHeld(made.partition, fresh=True)
    lake = frames.OpenLake(str(made.lake), {}, made.identity.cluster_id)
    patient = process.ColdServer(msgspec.structs.replace(lake, patience_s=60))
    answer = asyncio.create_task(patient.answer(ask))
    await asyncio.to_thread(began.wait)
    away, _ = await process.ColdServer(lake).answer(ask)  # gives up while the other still waits
    assert isinstance(away, frames.SayAway)
    assert away.message.endswith("did not answer within 0.05 s.")
    goes_on.set()
    held, _ = await answer
    assert isinstance(held, frames.SayHeld)
    assert held.held is not None
    assert held.held.end == 5
