"""Compaction of a topic in the default format: what is left, how long it takes, what it frees, and who notices.

The topic is filled first and compacted then: its policy is changed, so that nothing is compacted meanwhile. What is
left is read back and compared, record by record, with what the last record of each key is.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import redis
from tests.broker_process import wait_until

from bench.report import Figure, Report
from bench.systems import Headrace
from bench.targets import COMPACTED, NOT_COMPACTED
from headrace.client import Admin, Cluster, Reader
from headrace.client.batch_sender import BatchSender
from headrace.wire.records import Record, decode_batch, encode_batch

_TOPIC, _OTHER = "state", "other"
_BATCH = 1_000
_VALUE_BYTES = 100
_PRODUCES = 1_500
_ROUNDS = 3
"""Of produces before, and after; twice as many meanwhile. The median of their p99 counts."""
_PAUSE_S = 0.002
_PATIENCE_S = 1_800.0


def run(report: Report, *, quick: bool) -> None:
    records, keys = (100_000, 1_000) if quick else (10_000_000, 100_000)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        system = Headrace(Path(folder), compaction_check_interval_ms=200, retention_check_interval_ms=3_600_000)
        try:
            _measure(report, system, records, keys, produces=200 if quick else _PRODUCES)
        finally:
            system.stop()


def _measure(report: Report, system: Headrace, records: int, keys: int, produces: int) -> None:
    size = f"{records:,} records over {keys:,} keys"
    with Cluster(system.address) as cluster, redis.Redis(unix_socket_path=system.store_socket) as store:
        admin = Admin(cluster)
        admin.create_topic(_TOPIC, 1)
        admin.create_topic(_OTHER, 1)
        last = _fill(cluster, records, keys)
        before_bytes = _used_bytes(store)
        alone_ms = [_produce_p99_ms(cluster, produces) for _ in range(_ROUNDS)]
        admin.alter_configs(_TOPIC, {"cleanup.policy": "compact"})
        began = time.perf_counter()
        wait_until(lambda: bool(store.keys(f"*{{{_TOPIC}:*:clean:new")), "compaction does not begin", _PATIENCE_S)
        beside_ms: list[float] = []
        while _clean_end(store) < records and len(beside_ms) < 2 * _ROUNDS:
            beside_ms.append(_produce_p99_ms(cluster, produces))
        was_going_on = len(beside_ms) > 1 or _clean_end(store) < records
        wait_until(lambda: _clean_end(store) >= records, "compaction does not end", _PATIENCE_S)
        took_s = time.perf_counter() - began
        alone_ms += [_produce_p99_ms(cluster, produces) for _ in range(_ROUNDS)]
        left = _read_keys(cluster)
        assert left == last, f"{len(left):,} records are left, {len(last):,} should be"
        after_bytes = _used_bytes(store)
    note = "" if was_going_on else "compaction was over before the produces"
    values = {COMPACTED: beside_ms, NOT_COMPACTED: alone_ms}
    report.add(
        Figure("compaction", f"produce beside it, {size}, p99", "ms", values, goal="beside compaction", note=note)
    )
    report.add(Figure("compaction", f"records/s looked at, {size}", "records/s", {COMPACTED: [records / took_s]}))
    sizes = {COMPACTED: [after_bytes / 1e6], NOT_COMPACTED: [before_bytes / 1e6]}
    report.add(Figure("compaction", f"memory of the store, {size}", "MB", sizes))


def _fill(cluster: Cluster, records: int, keys: int) -> dict[int, bytes]:
    """Writes random updates; the offset and key of what has to be left in the end."""
    chance, sender = random.Random(keys), BatchSender(cluster, _TOPIC)
    distinct = min(records // _BATCH, 10 * keys // _BATCH)
    numbers = [[chance.randrange(keys) for _ in range(_BATCH)] for _ in range(distinct)]
    value, now_ms = b"v" * _VALUE_BYTES, time.time_ns() // 1_000_000
    batches = [
        encode_batch([Record(at, now_ms, b"key %d" % key, value, []) for at, key in enumerate(row)]) for row in numbers
    ]
    latest: dict[int, int] = {}
    for at in range(records // _BATCH):
        sender.send({0: bytearray(batches[at % distinct])})
        if at >= records // _BATCH - distinct:
            latest.update((key, at * _BATCH + place) for place, key in enumerate(numbers[at % distinct]))
    sender.send({0: bytearray(encode_batch([Record(0, now_ms, b"the last entry", b"", [])]))})
    return {offset: b"key %d" % key for key, offset in latest.items()} | {records: b"the last entry"}


def _read_keys(cluster: Cluster) -> dict[int, bytes]:
    reader, offset, found = Reader(cluster), 0, dict[int, bytes]()
    while batches := reader.fetch_raw(_TOPIC, 0, offset, max_wait_ms=0).batches:
        for batch in batches:
            for record in decode_batch(batch):
                found[record.offset] = record.key or b""
                offset = record.offset + 1
    return found


def _produce_p99_ms(cluster: Cluster, count: int) -> float:
    """Of small batches one after the other, to another topic of the same broker."""
    sender, took_s = BatchSender(cluster, _OTHER), list[float]()
    batch = encode_batch([Record(at, 0, None, b"v" * _VALUE_BYTES, []) for at in range(10)])
    for _ in range(count):
        began = time.perf_counter()
        sender.send({0: bytearray(batch)})
        took_s.append(time.perf_counter() - began)
        time.sleep(_PAUSE_S)
    return sorted(took_s)[int(len(took_s) * 0.99)] * 1000


def _clean_end(store: Any) -> int:
    [meta] = store.keys(f"*{{{_TOPIC}:*:meta")
    stored = store.hget(meta, "clean")
    return int(stored.split(b'"end":')[1].split(b",")[0]) if stored else 0


def _used_bytes(store: Any) -> int:
    return int(store.info("memory")["used_memory"])
