"""A transactional producer of either version by hand: whole frames, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from headrace.broker.broker import Broker
from headrace.wire import records
from headrace.wire.batch import TRANSACTIONAL, BatchHeader, end_offset, iter_headers, read_header, seal
from headrace.wire.control import EndMarker, read_marker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.records import Record
from tests.broker.rights.caller import Client

TOPIC = "ledger"
PARTITIONS = 3


def batch(
    values: list[bytes],
    producer: tuple[int, int],
    sequence: int,
    *,
    transactional: bool = True,
    key: bytes | None = None,
) -> bytes:
    """A batch of a producer."""
    made = records.encode_batch(
        [Record(at, 1_700_000_000_000, key, value) for at, value in enumerate(values)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
    )
    header = read_header(made)
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    fields["attributes"] |= TRANSACTIONAL if transactional else 0
    return seal(BatchHeader(**fields), made[61:])


class Logged(NamedTuple):
    """A batch in the log."""

    offset: int
    producer_id: int
    epoch: int
    values: list[bytes]
    marker: EndMarker | None


class Nodes:
    """A client of several nodes: it asks whoever leads, or owns."""

    def __init__(self, *brokers: Broker) -> None:
        self.clients = {broker.store.nodes.me.id: Client(broker, "mover") for broker in brokers}

    async def any(self, request: Any, version: int | None = None) -> Any:
        return await next(iter(self.clients.values())).ask(request, version)

    def owner(self, key: str) -> Client:
        nodes = next(iter(self.clients.values())).broker.store.nodes
        return self.clients[nodes.owner(key.encode()).id]

    async def leader(self, number: int, topic: str = TOPIC) -> Client:
        broker = next(iter(self.clients.values())).broker
        found = await broker.store.default.catalogue.find(topic)
        assert found is not None
        return self.clients[broker.store.nodes.leader(found, number).id]

    async def create(self, topic: str = TOPIC, partitions: int = PARTITIONS, **configs: str) -> None:
        request = CreateTopicsRequest([CreatableTopic(topic, partitions, 1)], 5_000)
        answer = await self.any(request)
        assert answer.topics[0].error_code in (0, 36)

    async def read(self, number: int, isolation: int = 1, topic: str = TOPIC) -> list[bytes]:
        """The values of a partition, as a client of that isolation level hands them out."""
        found: list[bytes] = []
        async for raw, aborted in self._fetch(number, isolation, topic):
            self._take(raw, aborted, found)
        return found

    async def batches(self, number: int, topic: str = TOPIC) -> list[Logged]:
        """All that is in the log of a partition, markers too."""
        found: list[Logged] = []
        async for raw, _ in self._fetch(number, 0, topic):
            for pos, header in iter_headers(raw):
                marker = read_marker(raw, pos) if header.is_control else None
                decoded = () if header.is_control else records.decode_batch(raw[pos : pos + header.length])
                values = [record.value or b"" for record in decoded]
                found.append(Logged(header.base_offset, header.producer_id, header.producer_epoch, values, marker))
        return found

    async def _fetch(
        self, number: int, isolation: int, topic: str
    ) -> AsyncIterator[tuple[bytes, list[tuple[int, int]]]]:
        """A partition's batches in portions, each with its aborted transactions, the last first."""
        offset, end = 0, await self.end(number, isolation, topic)
        while offset < end:
            asked = FetchTopic(topic=topic, partitions=[FetchPartition(number, fetch_offset=offset)])
            asked.partitions[0].partition_max_bytes = 1 << 20
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation, topics=[asked]
            )
            data = (await (await self.leader(number, topic)).ask(request, 12)).responses[0].partitions[0]
            if data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                await asyncio.sleep(0.02)  # its lease was late, on a busy machine: clients try again
                continue
            assert data.error_code == 0
            raw = bytes(data.records)
            assert raw
            aborted = [(a.first_offset, a.producer_id) for a in data.aborted_transactions or []]
            yield raw, sorted(aborted, reverse=True)
            offset = end_offset(raw)

    @staticmethod
    def _take(raw: bytes, aborted: list[tuple[int, int]], found: list[bytes]) -> None:
        dropping: set[int] = set()
        for pos, header in iter_headers(raw):
            while aborted and aborted[-1][0] <= header.last_offset:
                dropping.add(aborted.pop()[1])
            if header.is_control:
                dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                found += [r.value or b"" for r in records.decode_batch(raw[pos : pos + header.length])]

    async def end(self, number: int, isolation: int, topic: str = TOPIC) -> int:
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=number, timestamp=-1)])
        request = ListOffsetsRequest(isolation_level=isolation, topics=[asked])
        answer = (await (await self.leader(number, topic)).ask(request, 7)).topics[0].partitions[0]
        assert answer.error_code == 0
        offset: int = answer.offset
        return offset

    async def is_stable(self, topic: str = TOPIC) -> bool:
        """Whether nothing is open anywhere."""
        try:
            ends = [(await self.end(n, 0, topic), await self.end(n, 1, topic)) for n in range(PARTITIONS)]
        except (AssertionError, KeyError):
            return False  # the store is away, or another node leads by now
        return all(end == stable for end, stable in ends)

    async def committed(self, group: str, *, stable: bool = True) -> tuple[int, int]:
        """Error and offset of partition 0."""
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )
        row = (await self.owner(group).ask(request, 9)).groups[0].topics[0].partitions[0]
        return row.error_code, row.committed_offset


class Mover:
    """A transactional producer."""

    def __init__(self, nodes: Nodes, name: str = "mover", version: int = 2) -> None:
        self.nodes = nodes
        self.name = name
        self.version = version
        self.producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    @property
    def coordinator(self) -> Client:
        return self.nodes.owner(self.name)

    async def init(self, producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000) -> int:
        request = InitProducerIdRequest(self.name, timeout_ms, *producer)
        answer = await self.coordinator.ask(request, 5)
        if not answer.error_code:
            self.producer = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
        error: int = answer.error_code
        return error

    async def init_patiently(self) -> None:
        while error := await self.init():
            assert error in (51, 15, 16), error
            await asyncio.sleep(0.02)

    async def send(self, number: int, *values: bytes, topic: str = TOPIC) -> int:
        if self.version == 1:
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer[0],
                v3_and_below_producer_epoch=self.producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [number])],
            )
            answer = await self.coordinator.ask(adding, 3)
            error: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if error:
                return error
        return await self.append(number, *values, topic=topic)

    async def append(self, number: int, *values: bytes, topic: str = TOPIC) -> int:
        sequence = self._sequences.get(number, 0)
        made = memoryview(bytearray(batch(list(values), self.producer, sequence)))
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(number, made)])
        request = ProduceRequest(self.name, -1, 5_000, [data])
        client = await self.nodes.leader(number, topic)
        answer = (await client.ask(request, 12 if self.version == 2 else 11)).responses[0].partition_responses[0]
        if not answer.error_code:
            self._sequences[number] = sequence + len(values)
        error: int = answer.error_code
        return error

    async def send_offsets(self, group: str, offset: int) -> int:
        if self.version == 1:
            request = AddOffsetsToTxnRequest(self.name, *self.producer, group)
            error: int = (await self.coordinator.ask(request, 3)).error_code
            if error:
                return error
        rows = [TxnOffsetCommitRequestPartition(0, offset)]
        commit = TxnOffsetCommitRequest(self.name, group, *self.producer, topics=[])
        commit.topics = [TxnOffsetCommitRequestTopic(TOPIC, partitions=rows)]
        answer = await self.nodes.owner(group).ask(commit, 5 if self.version == 2 else 3)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def end(self, *, commit: bool, producer: tuple[int, int] | None = None) -> int:
        request = EndTxnRequest(self.name, *(producer or self.producer), commit)
        answer = await self.coordinator.ask(request, 5 if self.version == 2 else 4)
        if not answer.error_code and self.version == 2 and producer is None:
            self.producer = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
        error: int = answer.error_code
        return error


async def until(holds: Callable[[], Any], timeout_s: float = 20.0) -> None:
    """Waits for a state."""
    async with asyncio.timeout(timeout_s):
        while not await holds():  # noqa: ASYNC110 - the state is elsewhere
            await asyncio.sleep(0.02)
