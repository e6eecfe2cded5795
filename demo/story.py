"""The demo, step by step. Each step checks what it prints; the last table compares the counts of all readers."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import redis
from confluent_kafka import Producer
from deltalake import DeltaTable
from tests.broker_process import BrokerProcess, wait_until

from demo.orders import HOUR_MS, HOURS, Tally, a_day, order
from demo.readers import read_in_group
from demo.spark_jobs import SQL, headrace, sum_up
from demo.stage import Line, Stage
from demo.story_errors import Disagreement
from headrace.client import Admin, Cluster
from headrace.wire.special_times import EARLIEST, EARLIEST_LOCAL

TOPIC = "orders"
PARTITIONS = 3
MEMBERS = 3
LOCAL_HOURS = 6
LIMIT_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    lines: list[Line]
    cents: Mapping[int, int]
    cold_cents: Mapping[int, int]
    """By hour: all orders, and those that are only in the table."""

    @property
    def agrees(self) -> bool:
        return all(line.agrees is not False for line in self.lines)


class Story:
    """One run, in its own folder."""

    def __init__(self, folder: Path, orders: int, stage: Stage) -> None:
        self._folder, self._orders, self._stage = folder, orders, stage
        self._lake = folder / "lake"
        self._produced = Tally()
        self._full_mib = 0.0
        self._broker = BrokerProcess(
            folder / "data", lake=self._lake, retention_check_interval_ms=500, log_level="warning"
        )

    def tell(self) -> Outcome:
        """Runs every step; raises `Disagreement` if a check fails."""
        try:
            return self._tell()
        finally:
            self._broker.end()

    def _tell(self) -> Outcome:
        step = self._stage.step
        with step("A broker starts, its log in an embedded Valkey"):
            self._start()
        with step(f"{self._orders:,} orders of the last {HOURS} hours are produced"):
            self._produce_day()
            day = deepcopy(self._produced)
        with step(f"A consumer group of {MEMBERS} members reads them"):
            billing = self._read("billing", MEMBERS)
        with step("Spark archives them into a Delta table"):
            table = self._archive()
        with step(f"Redis drops everything older than {LOCAL_HOURS} hours"):
            cold_cents = self._trim(table)
        with step("New orders arrive, and a new group reads everything from offset 0"):
            self._produce_more(max(1, self._orders // 100))
            audit = self._read("audit", 1)
        with step("A streaming SQL query aggregates the same topic"):
            self._stage.say(SQL)
            summed = sum_up(self._broker.address, TOPIC, self._folder)
        with step("The table is verified against the topic"):
            self._verify()
        if errors := [line for line in self._broker.log.splitlines() if '"level": "error"' in line]:
            raise Disagreement(f"the broker logged an error: {errors[0]}")
        total = self._produced
        return Outcome(
            [
                Line("produced in the day", day.orders, day.cents, None),
                _line("group billing, from Redis", billing, day),
                _line("Delta table, read by delta-rs", _tally_of(table), day),
                Line("produced in total", total.orders, total.cents, None),
                _line("group audit, from table and Redis", audit, total),
                _line("streaming SQL, from table and Redis", summed, total),
            ],
            total.cents_by_hour,
            cold_cents,
        )

    # Steps

    def _start(self) -> None:
        self._stage.command("headrace serve --lake lake")
        self._broker.start()
        with Cluster(self._broker.address) as cluster:
            configs = {"remote.storage.enable": "true", "local.retention.ms": str(LOCAL_HOURS * HOUR_MS)}
            Admin(cluster).create_topic(TOPIC, PARTITIONS, configs)
        self._stage.say(f"topic {TOPIC}, {PARTITIONS} partitions")
        for name, value in configs.items():
            self._stage.say(f"  {name}={value}")

    def _produce_day(self) -> None:
        for hour in a_day(self._orders, time.time_ns() // 1_000_000):
            self._produce(hour)
        self._full_mib = self._redis_mib()
        self._stage.say(f"Redis uses {self._full_mib:.1f} MiB")

    def _produce_more(self, count: int) -> None:
        chance = random.Random(count)
        now_ms = time.time_ns() // 1_000_000
        self._produce([order(self._orders + at, now_ms, chance) for at in range(count)])
        self._stage.say(f"{count:,} new orders")

    def _produce(self, orders: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Returns once all of them are acknowledged."""
        producer = Producer({"bootstrap.servers": self._broker.address, "linger.ms": 5})
        failures: list[str] = []
        for key, value, timestamp_ms in orders:
            producer.produce(
                TOPIC, value, key, timestamp=timestamp_ms,
                on_delivery=lambda error, _: failures.append(error.str()) if error else None,
            )  # fmt: skip
            self._produced.add(value, timestamp_ms)
        left = producer.flush(LIMIT_S)
        if failures or left:
            raise Disagreement(f"{left + len(failures)} orders were not acknowledged: {''.join(failures[:1])}")

    def _read(self, group: str, members: int) -> Tally:
        reading = read_in_group(self._broker.address, TOPIC, group, members, self._produced.orders)
        if set(reading.first.values()) != {0}:
            raise Disagreement(f"{group} did not start at offset 0: {reading.first}")
        who = f"{reading.members} members" if members > 1 else "one member"
        self._stage.say(f"group {group}: {who} read {reading.tally.orders:,} orders from offset 0, none missing")
        return reading.tally

    def _archive(self) -> pa.Table:
        self._stage.command("headrace lake archive --lake lake --once")
        headrace("lake", "archive", "--lake", str(self._lake), "--once", "--bootstrap", self._broker.address)
        table = DeltaTable(self._lake / TOPIC)
        self._stage.say(f"{len(table.file_uris())} files, {table.count():,} rows")
        return table.to_pyarrow_table(columns=["partition", "offset", "timestamp_ms", "value"])

    def _trim(self, table: pa.Table) -> Counter[int]:
        """Waits for the trim; returns the revenue by hour of the orders that are now only in the table.

        The log is cut at index entries, so the youngest expired orders may stay a little longer.
        """
        oldest_ms = (time.time_ns() // 1_000_000 - LOCAL_HOURS * HOUR_MS) // HOUR_MS * HOUR_MS - HOUR_MS
        rows = list(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))
        wanted = {p: min((o for q, o, ms, _ in rows if q == p and ms >= oldest_ms)) for p in range(PARTITIONS)}
        wait_until(
            lambda: all(start >= wanted[partition] for partition, start in self._offsets(EARLIEST_LOCAL).items()),
            "Redis still has older records",
            LIMIT_S,
        )
        starts, local = self._offsets(EARLIEST), self._offsets(EARLIEST_LOCAL)
        if set(starts.values()) != {0}:
            raise Disagreement(f"the topic no longer starts at offset 0: {starts}")
        cold = Tally()
        for partition, offset, timestamp_ms, value in rows:
            if offset < local[partition]:
                cold.add(value, timestamp_ms)
        self._stage.say(f"{cold.orders:,} orders are now only in the table")
        self._stage.say(f"Redis uses {self._redis_mib():.1f} MiB, down from {self._full_mib:.1f}")
        return cold.cents_by_hour

    def _verify(self) -> None:
        self._stage.command("headrace lake verify --lake lake")
        said = headrace("lake", "verify", "--lake", str(self._lake), "--bootstrap", self._broker.address)
        self._stage.say(said.strip().replace(", ", ",\n"))

    # Reading state

    def _offsets(self, where: int) -> dict[int, int]:
        with Cluster(self._broker.address) as cluster:
            found = Admin(cluster).list_offsets({(TOPIC, partition): where for partition in range(PARTITIONS)})
        return {partition: at.offset for (_, partition), at in found.items()}

    def _redis_mib(self) -> float:
        socket = json.loads((self._broker.data_dir / "valkey.json").read_text())["socket"]
        with redis.Redis(unix_socket_path=socket) as link:
            used: int = link.info("memory")["used_memory"]
        return used / (1 << 20)


def _tally_of(table: pa.Table) -> Tally:
    tally = Tally()
    for value, timestamp_ms in zip(table["value"].to_pylist(), table["timestamp_ms"].to_pylist(), strict=True):
        tally.add(value, timestamp_ms)
    return tally


def _line(who: str, found: Tally, expected: Tally) -> Line:
    return Line(who, found.orders, found.cents, found == expected)
