"""Replay: sends the rows of a table to a topic, each once, in the order of each source partition.

Each record has its origin in a header (`origin`), and records in the target are not sent again: that is the only
position, so a killed run resumes with the same command. One thread reads and encodes, one sends and waits. Batches that
a killed run still had in flight when the next one read the target are caught by the sequences of the idempotent
producer, which the next run continues (`client.batch_sender`); then it reads the target again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa

from headrace.client import Cluster
from headrace.lake.replay.batches import ReplayBatch, encode_batches
from headrace.lake.replay.origin import Arrived, Origin, carry_origin, find_arrived, with_origin
from headrace.lake.replay.partitions import Partitioner, choose
from headrace.lake.replay.rows import Block, Excerpt, TableRows
from headrace.lake.replay.sending import Overtaken, Sending
from headrace.lake.replay.target import Target
from headrace.lake.table.table import TopicTable
from headrace.wire.compression import Compression

LOOKS = 5
"""How often a run reads the target again after late batches of an earlier one."""

Phase = Literal["looking", "sending"]


class ReplaySettings(msgspec.Struct, frozen=True):
    """What to replay and how."""

    bounds: Excerpt = Excerpt()
    partitions: tuple[int, ...] = ()
    keep_timestamps: bool = False
    partitioner: Partitioner = "key"
    compression: Compression = "none"
    run: str = ""


class Summary(msgspec.Struct):
    """The result of a run. `already`: records already in the target; `left_out`: from a replay into the source."""

    topic: str
    into: str
    partitions: int
    partitioner: Partitioner
    rows: int = 0
    sent: int = 0
    already: int = 0
    left_out: int = 0
    sent_bytes: int = 0
    gaps: int = 0
    seconds: float = 0.0


class Replay:
    """One replay of a table into a topic. `progress` gets the phase, how much is done, and the total."""

    def __init__(
        self,
        table: TopicTable,
        cluster: Cluster,
        target: Target,
        settings: ReplaySettings,
        *,
        say: Callable[[str], None] = lambda sentence: None,
        progress: Callable[[Phase, int, int], None] = lambda phase, done, total: None,
    ) -> None:
        self._table, self._cluster, self._target, self._settings = table, cluster, target, settings
        self._say, self._progress = say, progress
        self._origin = Origin(table.identity, settings.run)
        self._into_itself = target.topic_id == table.identity.topic_id
        self.summary = Summary(table.identity.topic, target.name, target.partitions, settings.partitioner)

    def run(self) -> Summary:
        """Sends what is not in the target yet."""
        began = time.monotonic()
        for look in range(LOOKS):
            arrived = find_arrived(
                self._cluster, self._target.name, self._origin, lambda seen, of: self._progress("looking", seen, of)
            )
            if arrived.records and look == 0:
                self._say(f"{arrived.records:,} records of this source are already in {self._target.name}")
            try:
                self._send_all(arrived)
                break
            except Overtaken as error:
                if look == LOOKS - 1:
                    raise OSError(f"another replay of the same source writes to {self._target.name}: {error}") from None
                self._say("records of an earlier run arrived late: checking again")
            except FileNotFoundError:
                if look == LOOKS - 1:
                    raise
                # The table was compacted after its files were listed.
                self._table.refresh()
        self.summary.seconds = time.monotonic() - began
        return self.summary

    def _send_all(self, arrived: Arrived) -> None:
        source = TableRows(self._table, self._settings.bounds, self._settings.partitions)
        self.summary.rows = self.summary.already = self.summary.left_out = 0
        self.summary.gaps = source.gaps
        before = self.summary.sent, self.summary.sent_bytes
        with Sending(self._cluster, self._target.name, self._origin, arrived) as sending:
            try:
                for block in source.blocks():
                    self.summary.rows += block.rows.num_rows
                    for request in self._requests(block, arrived):
                        sending.put(request)
                    self._progress("sending", self.summary.rows, source.rows)
                sending.finish()
            finally:
                self.summary.sent, self.summary.sent_bytes = before[0] + sending.records, before[1] + sending.size_bytes

    def _requests(self, block: Block, arrived: Arrived) -> Iterator[dict[int, ReplayBatch]]:
        """The requests for a block, each with at most one batch per partition."""
        rows, chosen = self._to_send(block, arrived)
        if not len(chosen):
            return
        times = rows.column("timestamp_ms")
        if not self._settings.keep_timestamps:
            times = pa.array(np.full(rows.num_rows, time.time_ns() // 1_000_000))
        headers = with_origin(self._origin, block.partition, rows.column("offset"), rows.column("headers"))
        whole = pa.record_batch(
            [rows.column("offset"), times, rows.column("key"), rows.column("value"), headers],
            names=["offset", "timestamp_ms", "key", "value", "headers"],
        )
        batches = {
            int(target): encode_batches(
                whole if (chosen == target).all() else whole.take(pa.array(np.flatnonzero(chosen == target))),
                block.partition, self._target.max_message_bytes, self._settings.compression,
            )
            for target in np.unique(chosen)
        }  # fmt: skip
        while batches:
            request = {target: batch for target, more in batches.items() if (batch := next(more, None)) is not None}
            batches = {target: batches[target] for target in request}
            if request:
                yield request

    def _to_send(self, block: Block, arrived: Arrived) -> tuple[pa.RecordBatch, np.ndarray]:
        """The rows of a block that are not in the target, and their target partitions."""
        rows, source = block.rows, block.partition
        if self._into_itself:
            replayed = carry_origin(self._origin, rows.column("headers"))
            self.summary.left_out += int(replayed.sum())
            rows = rows.filter(pa.array(~replayed))
        offsets = rows.column("offset").to_numpy()
        chosen = choose(rows.column("key"), source, self._target.partitions, self._settings.partitioner)
        there = arrived.of(source).has(offsets)
        if self._target.is_compacted:
            # A record that compaction removed was sent, if later ones of the same source are there.
            reached = np.zeros(self._target.partitions, dtype=np.int64)
            for (partition, target), end in arrived.reached.items():
                if partition == source:
                    reached[target] = end
            there |= offsets < reached[chosen]
            self._target.check_keys(rows.column("key"), source, offsets)
        self.summary.already += int(there.sum())
        if there.any():
            rows, chosen = rows.filter(pa.array(~there)), chosen[~there]
        return rows, chosen
