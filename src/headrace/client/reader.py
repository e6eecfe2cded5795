"""A simple reader of partitions: from given offsets, to the end or following it, with long polls.

It has no group and commits nothing. `fetch_raw` returns batches undecoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from headrace.client.admin import Admin
from headrace.client.cluster import Cluster, by_topic
from headrace.client.connection import BrokerConnection, check
from headrace.wire.batch import HEADER_BYTES, read_header
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.records import Record, decode_batch
from headrace.wire.schema import ZERO_UUID
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

TOPICS_BY_NAME = 12
"""The newest version of Fetch that names topics; later ones have only their ids."""

NO_SESSION = -1


class Fetched(msgspec.Struct):
    """The result of a fetch: whole batches, the first of which may start before the requested offset."""

    batches: list[memoryview]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] = []
    """Producer id and first offset of the aborted transactions in the batches, with `read_committed`."""


class Reader:
    """Reads partitions of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 8 * 1024 * 1024,
        read_committed: bool = False,
    ) -> None:
        self.cluster = cluster
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.read_committed = read_committed

    def read(self, start: Mapping[TopicPartition, int], *, follow: bool = False) -> Iterator[tuple[str, int, Record]]:
        """Topic, partition and record, each partition's in order, from offsets (or EARLIEST, LATEST) on.

        It stops where the partitions end now, or never if it is to `follow`.
        """
        admin = Admin(self.cluster)
        special = {partition: at for partition, at in start.items() if at in (EARLIEST, LATEST)}
        positions = dict(start) | {p: found.offset for p, found in admin.list_offsets(special).items()}
        ends: dict[TopicPartition, int] = {}
        if not follow:
            latest = admin.list_offsets(dict.fromkeys(positions, LATEST), read_committed=self.read_committed)
            ends = {partition: found.offset for partition, found in latest.items()}
        while True:
            wanted = {p: at for p, at in positions.items() if follow or at < ends[p]}
            if not wanted:
                return
            for partition, fetched in self.fetch(wanted).items():
                for batch in fetched.batches:
                    header = read_header(batch)
                    # Control batches mark a transaction's end: they take an offset but have no records for readers.
                    for record in [] if header.is_control else decode_batch(batch):
                        if positions[partition] <= record.offset < ends.get(partition, record.offset + 1):
                            yield *partition, record
                    positions[partition] = max(positions[partition], header.next_offset)

    def fetch_raw(
        self, topic: str, partition: int, offset: int, *, max_bytes: int | None = None, max_wait_ms: int | None = None
    ) -> Fetched:
        """The batches of one partition, from the one with `offset` on; none if nothing arrived in time."""
        return self.fetch({(topic, partition): offset}, max_bytes=max_bytes, max_wait_ms=max_wait_ms)[topic, partition]

    def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
    ) -> dict[TopicPartition, Fetched]:
        """Polls all these partitions once: sends requests to all leaders, then reads the responses one by one."""
        wait_ms = self.max_wait_ms if max_wait_ms is None else max_wait_ms

        def attempt() -> dict[TopicPartition, Fetched]:
            asked: list[tuple[BrokerConnection, dict[bytes, str]]] = []
            for node_id, partitions in self.cluster.by_leader(offsets).items():
                connection = self.cluster.node(node_id)
                request, version = self._request(connection, partitions, offsets, max_bytes or self.max_bytes, wait_ms)
                connection.ask(request, version)
                asked.append((connection, {topic.topic_id: topic.topic for topic in request.topics}))
            found: dict[TopicPartition, Fetched] = {}
            for connection, names in asked:
                answer = connection.receive(extra_wait_s=wait_ms / 1000)
                assert isinstance(answer, FetchResponse)
                found |= self._results(answer, names)
            return found

        return self.cluster.retrying(attempt)

    def _request(
        self,
        connection: BrokerConnection,
        partitions: list[TopicPartition],
        offsets: Mapping[TopicPartition, int],
        max_bytes: int,
        wait_ms: int,
    ) -> tuple[FetchRequest, int]:
        topics = [
            FetchTopic(
                self.cluster.topic(name).topic_id,
                name,
                [FetchPartition(i, fetch_offset=offsets[name, i], partition_max_bytes=max_bytes) for i in indexes],
            )
            for name, indexes in by_topic(partitions).items()
        ]
        have_ids = all(topic.topic_id != ZERO_UUID for topic in topics)
        version = connection.newest(FetchRequest.api.key, FetchRequest.api.versions[1] if have_ids else TOPICS_BY_NAME)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(self.read_committed),
            session_epoch=NO_SESSION,
            topics=topics,
        )
        return request, version

    def _results(self, answer: FetchResponse, names: dict[bytes, str]) -> dict[TopicPartition, Fetched]:
        check(answer.error_code)
        found: dict[TopicPartition, Fetched] = {}
        for topic in answer.responses:
            name = topic.topic or names[topic.topic_id]
            for data in topic.partitions:
                if data.error_code:
                    raise self.cluster.topic_error(name, data.error_code)
                found[name, data.partition_index] = _fetched(data)
        return found


def _fetched(data: PartitionData) -> Fetched:
    records = data.records if isinstance(data.records, bytes | bytearray | memoryview) else b""
    return Fetched(
        list(whole_batches(memoryview(records))),
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        [(aborted.producer_id, aborted.first_offset) for aborted in data.aborted_transactions or []],
    )


def whole_batches(records: memoryview) -> Iterator[memoryview]:
    """The batches one by one; a last one that is truncated by the broker's limit is left out."""
    pos = 0
    while pos + HEADER_BYTES <= len(records):
        end = pos + read_header(records, pos).length
        if end > len(records):
            return
        yield records[pos:end]
        pos = end
