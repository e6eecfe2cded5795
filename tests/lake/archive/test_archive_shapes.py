"""Records as other people's programs write them, archived and read again by programs that are not ours.

Six topics, each of a shape that trips somebody: nested JSON, change events with tombstones, floats and nulls, bytes
that are no text, everything empty or missing, and values of a megabyte. What was acknowledged is remembered by the
client that sent it; DuckDB and Polars read the tables.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import polars as pl
import pytest

from headrace.client import Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from tests.broker_process import BrokerProcess
from tests.lake.archiving import table_of
from tests.lake.conftest import Topic
from tests.lake.other_reader import ask, live_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

PARTITIONS = 3
FIRST_MS = 1_700_000_000_000
Headers = list[tuple[str, bytes | None]]
Made = tuple[bytes | None, bytes | None, Headers]
"""Key, value, headers."""


def _event(at: int, chance: random.Random) -> Made:
    """As code hosts publish them."""
    actor = {"id": at, "login": f"user-{at % 97}", "url": None}
    commits = [{"sha": f"{chance.getrandbits(160):040x}", "message": "Größe 📦", "distinct": True}] * (at % 4)
    event = {"id": str(at), "type": "PushEvent", "actor": actor, "payload": {"commits": commits, "size": at % 4}}
    return None, json.dumps(event, ensure_ascii=False).encode(), []


def _change(at: int, chance: random.Random) -> Made:
    """As databases' change feeds write them: envelopes, and a tombstone behind each deletion."""
    key = json.dumps({"id": at // 3}).encode()
    row = {"id": at // 3, "balance": str(chance.randint(0, 1 << 70)), "at": FIRST_MS + at}
    envelope = {"op": "cud"[at % 3], "before": None if at % 3 == 0 else row, "after": row if at % 3 < 2 else None}
    headers: Headers = [("source", b"mysql"), ("trace", None), ("source", b"")]
    return key, None if at % 5 == 4 else json.dumps(envelope).encode(), headers


def _trip(at: int, chance: random.Random) -> Made:
    fare = None if at % 11 == 0 else round(chance.uniform(2, 90), 2)
    trip = {"vendor": at % 3, "fare": fare, "distance": 1e300 if at % 501 == 0 else chance.random(), "tip": -0.0}
    return str(at % 263).encode(), json.dumps(trip).encode(), []


def _avro(at: int, chance: random.Random) -> Made:
    """With the prefix of a schema registry: a zero byte and an id."""
    return b"\0" * (at % 3), b"\0" + struct.pack(">I", 1 + at % 2) + chance.randbytes(at % 40), []


def _nothing(at: int, chance: random.Random) -> Made:
    empty: list[bytes | None] = [None, b"", b"\xff\xfe"]
    return empty[at % 3], empty[at // 3 % 3], [("", b"")] * (at % 2)


def _large(at: int, chance: random.Random) -> Made:
    """A megabyte, now and then; most are small."""
    return None, chance.randbytes(1_000_000 if at % 500 == 0 else 20), []


SHAPES: dict[str, Callable[[int, random.Random], Made]] = {
    "events": _event, "changes": _change, "trips": _trip, "avro": _avro, "nothing": _nothing, "large": _large,
}  # fmt: skip


def send(
    address: str, topic: str, shape: Callable[[int, random.Random], Made], count: int
) -> dict[tuple[int, int], str]:
    """Sends records with a client that is not ours; the digest of each that was acknowledged, by where it is."""
    acknowledged: dict[tuple[int, int], str] = {}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "compression.type": "zstd", "linger.ms": 20, "message.max.bytes": 2_000_000}
    )
    chance = random.Random(topic)
    for at in range(count):
        key, value, headers = shape(at, chance)
        told = digest(key, value, FIRST_MS + at, headers)

        def delivered(error: Any, message: Any, told: str = told) -> None:
            assert error is None, error
            acknowledged[message.partition(), message.offset()] = told

        while True:
            try:
                producer.produce(
                    topic, value, key, at % PARTITIONS, delivered, timestamp=FIRST_MS + at, headers=list[Any](headers)
                )
                break
            except BufferError:
                producer.poll(1)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert len(acknowledged) == count
    return acknowledged


def digest(key: bytes | None, value: bytes | None, at_ms: int, headers: Headers) -> str:
    """Of all that a record has. DuckDB makes the same of a row."""
    named = ",".join(f"{name}={_hex(content)}" for name, content in headers)
    return hashlib.md5(f"{_hex(key)}|{_hex(value)}|{at_ms}|{named}".encode()).hexdigest()


def _hex(content: bytes | None) -> str:
    return "-" if content is None else content.hex().upper()


DIGESTS = """
    SELECT "partition", "offset", md5(concat(
        coalesce(hex("key"), '-'), '|', coalesce(hex("value"), '-'), '|', timestamp_ms, '|',
        coalesce(array_to_string(list_transform(headers, lambda h: concat(h.key, '=', coalesce(hex(h.value), '-'))),
                                 ','), '')))
    FROM read_parquet($files)
"""


@pytest.mark.parametrize("count", [1_500, pytest.param(400_000, marks=[pytest.mark.faults, pytest.mark.timeout(3600)])])
def test_whatever_shape_records_have_other_readers_find_each_of_them(
    count: int, spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    names = {f"{topic}-{shape}": shape for shape in SHAPES}
    for name in names:
        Topic(broker, name, PARTITIONS).cluster.close()
    sent = {name: send(broker.address, name, SHAPES[shape], count) for name, shape in names.items()}
    with Cluster(broker.address) as cluster:
        archive = Archive(spark, cluster, ArchiveSettings(place_of(tmp_path), [*names], commit_bytes=32 << 20))
        archive.run_once()
        for name in names:
            table = table_of(tmp_path, name)
            files = [str(table / file) for file in live_files(table)]
            rows = ask(DIGESTS, files=files)
            assert len(rows) == count
            assert {(partition, offset): told for partition, offset, told in rows} == sent[name]
            counted = (
                pl.scan_delta(str(table)).group_by("partition").agg(pl.len(), pl.col("offset").n_unique().alias("n"))
            )
            assert sorted(counted.collect().rows()) == [
                (p, *[sum(at[0] == p for at in sent[name])] * 2) for p in range(PARTITIONS)
            ]
        assert archive.troubles == {}
        assert verify_lake(place_of(tmp_path), cluster, [*names]).findings == []
