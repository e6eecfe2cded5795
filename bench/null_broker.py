"""A broker that does nothing: the client's upper bound.

It acknowledges batches without checking or storing them, and hands out the very bytes that arrived, which stay where
they were received. One member to a group, no errors, no limits. `python -m bench.null_broker 0 9092` serves on a port
until it is ended, and says so; `0 9092 9093` and `1 9092 9093` are two nodes that lead every other partition each.
Nodes know nothing of each other: a topic is created at each.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import uvloop

from headrace.wire import codec
from headrace.wire.apis import APIS, request_class
from headrace.wire.frame import RequestHeader, read_request_header, response_frame
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from headrace.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from headrace.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.heartbeat import HeartbeatResponse
from headrace.wire.messages.init_producer_id import InitProducerIdResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from headrace.wire.messages.leave_group import LeaveGroupResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.wire.schema import Buffer, Payload

_HOST = "127.0.0.1"
_NEWEST = {0: 12, 1: 12, 8: 9, 9: 9}
"""Later versions name topics by id, which nothing here has."""
_OLDEST = {0: 0}
_EARLIEST = -2
_FIRST_BUFFER_BYTES = 256 << 10
_LARGE_BYTES = 32 << 10
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_LAST_OFFSET_DELTA_AT = 23


class _Partition:
    """Batches by their first offsets."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.batches: list[Buffer] = []
        self.end = 0

    def append(self, batch: memoryview) -> int:
        base = self.end
        _OFFSET.pack_into(batch, 0, base)
        self.bases.append(base)
        self.batches.append(batch)
        self.end = base + _LENGTH.unpack_from(batch, _LAST_OFFSET_DELTA_AT)[0] + 1
        return base

    def since(self, offset: int, max_bytes: int) -> list[Buffer]:
        """The batch that holds an offset and those behind it, as far as they fit."""
        if offset >= self.end:
            return []
        at = bisect_right(self.bases, offset) - 1
        stop, size = at + 1, len(self.batches[at])
        while stop < len(self.batches) and size + len(self.batches[stop]) <= max_bytes:
            size += len(self.batches[stop])
            stop += 1
        return self.batches[at:stop]


class NullBroker:
    """What all connections share."""

    def __init__(self, index: int, ports: list[int]) -> None:
        self.me, self.port = index, ports[index]
        self.nodes = [MetadataResponseBroker(number, _HOST, port) for number, port in enumerate(ports)]
        self.topics: dict[str, list[_Partition]] = {}
        self.waiting: set[_Client] = set()
        self.answers: dict[int, Callable[[Any], Payload]] = {
            0: self._produce, 2: self._list_offsets, 3: self._metadata, 8: self._offset_commit, 9: self._offset_fetch,
            10: self._find_coordinator, 11: self._join, 12: lambda _: HeartbeatResponse(),
            13: lambda _: LeaveGroupResponse(), 14: self._sync, 18: self._api_versions, 19: self._create_topics,
            20: self._delete_topics, 22: lambda _: InitProducerIdResponse(producer_id=1),
        }  # fmt: skip

    def _api_versions(self, _: Payload) -> ApiVersionsResponse:
        keys = [*self.answers, 1]
        return ApiVersionsResponse(
            0, [ApiVersion(key, _OLDEST.get(key, APIS[key].oldest), _NEWEST.get(key, APIS[key].newest)) for key in keys]
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = [topic.name or "" for topic in request.topics or []]
        return MetadataResponse(
            brokers=self.nodes,
            cluster_id="null",
            controller_id=self.me,
            topics=[
                MetadataResponseTopic(
                    error_code=0 if name in self.topics else 3,
                    name=name,
                    partitions=[
                        self._led(number, number % len(self.nodes)) for number in range(len(self.topics.get(name, [])))
                    ],
                )
                for name in names
            ],
        )

    def _led(self, number: int, node: int) -> MetadataResponsePartition:
        return MetadataResponsePartition(
            partition_index=number, leader_id=node, leader_epoch=0, replica_nodes=[node], isr_nodes=[node]
        )

    def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        for topic in request.topics:
            self.topics[topic.name] = [_Partition() for _ in range(topic.num_partitions)]
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(topic.name, num_partitions=topic.num_partitions) for topic in request.topics]
        )

    def _delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        names = [topic.name or "" for topic in request.topics] or request.topic_names
        for name in names:
            self.topics.pop(name, None)
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name) for name in names])

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        answers = []
        for data in request.topic_data:
            partitions = self.topics[data.name]
            answers.append(
                TopicProduceResponse(
                    name=data.name,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=one.index, base_offset=partitions[one.index].append(cast("memoryview", one.records))
                        )
                        for one in data.partition_data
                    ],
                )
            )
        for client in list(self.waiting):
            client.try_fetch()
        return ProduceResponse(answers)

    def fetch(self, request: FetchRequest) -> tuple[FetchResponse, int]:
        """The answer, and how many batches are in it."""
        count, topics = 0, []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self.topics[topic.topic][asked.partition]
                batches = partition.since(asked.fetch_offset, asked.partition_max_bytes)
                count += len(batches)
                rows.append(PartitionData(asked.partition, 0, partition.end, partition.end, 0, records=batches))
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=rows))
        return FetchResponse(responses=topics), count

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            ends = [0 if row.timestamp == _EARLIEST else self._end(topic.name, row) for row in topic.partitions]
            rows = [
                ListOffsetsPartitionResponse(row.partition_index, offset=end, leader_epoch=0)
                for row, end in zip(topic.partitions, ends, strict=True)
            ]
            topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return ListOffsetsResponse(topics=topics)

    def _end(self, topic: str, row: ListOffsetsPartition) -> int:
        return self.topics[topic][row.partition_index].end

    def _find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        rows = [Coordinator(key, self.me, _HOST, self.port, 0, None) for key in request.coordinator_keys]
        return FindCoordinatorResponse(0, rows, 0, None, self.me, _HOST, self.port)

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        chosen, me = request.protocols[0], request.member_id or "only"
        members = [JoinGroupResponseMember(me, None, chosen.metadata)]
        return JoinGroupResponse(0, 0, 1, request.protocol_type, chosen.name, me, False, me, members)

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        assignment = request.assignments[0].assignment if request.assignments else b""
        return SyncGroupResponse(0, 0, request.protocol_type, request.protocol_name, assignment)

    def _offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        topics = []
        for topic in request.topics:
            rows = [OffsetCommitResponsePartition(row.partition_index) for row in topic.partitions]
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return OffsetCommitResponse(topics=topics)

    def _offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        groups = []
        for group in request.groups:
            topics = []
            for topic in group.topics or []:
                rows = [OffsetFetchResponsePartitions(number, -1) for number in topic.partition_indexes]
                topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=rows))
            groups.append(OffsetFetchResponseGroup(group.group_id, topics))
        older = []
        for asked in request.topics or []:
            none = [OffsetFetchResponsePartition(number, -1) for number in asked.partition_indexes]
            older.append(OffsetFetchResponseTopic(asked.name, none))
        return OffsetFetchResponse(groups=groups, topics=older)


class _Client(asyncio.BufferedProtocol):
    """One connection. A large frame keeps the buffer that it was received in, a small one is copied out of it."""

    def __init__(self, broker: NullBroker) -> None:
        self._broker = broker
        self._transport: asyncio.Transport | None = None
        self._frame = bytearray(_FIRST_BUFFER_BYTES)
        self._filled = 0
        self._held: tuple[RequestHeader, FetchRequest] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._behind: deque[Buffer] = deque()
        """Frames that came while a Fetch is held: answers keep their order."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._held = None
        self._broker.waiting.discard(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        filled, frame, pos, is_taken = self._filled + nbytes, self._frame, 0, False
        size = 0
        while filled - pos >= 4:
            size = 4 + _LENGTH.unpack_from(frame, pos)[0]
            if filled - pos < size:
                break
            whole = memoryview(frame)[pos + 4 : pos + size]
            is_taken |= size >= _LARGE_BYTES
            self._whole(whole if size >= _LARGE_BYTES else bytearray(whole))
            pos += size
            size = 0
        rest = frame[pos:filled]
        if is_taken or size > len(frame):
            self._frame = bytearray(max(size, _FIRST_BUFFER_BYTES))
        if pos or self._frame is not frame:
            self._frame[: len(rest)] = rest
        self._filled = len(rest)

    def _whole(self, frame: Buffer) -> None:
        if self._held is not None:
            self._behind.append(frame)
            return
        header = read_request_header(frame)
        request, _ = codec.decode(request_class(header.api_key), header.api_version, frame, header.body)
        if isinstance(request, FetchRequest):
            self._held = header, request
            self._timer = asyncio.get_running_loop().call_later(request.max_wait_ms / 1000, self.try_fetch, True)
            self._broker.waiting.add(self)
            self.try_fetch()
            return
        answer = self._broker.answers[header.api_key](request)
        if not isinstance(request, ProduceRequest) or request.acks:
            self._send(header, answer)

    def try_fetch(self, is_over: bool = False) -> None:
        """Answers the Fetch that is held if there is something for it, or its time is over."""
        if self._held is None:
            return
        header, request = self._held
        answer, count = self._broker.fetch(request)
        if not count and not is_over:
            return
        self._held = None
        self._broker.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._send(header, answer)
        while self._behind and self._held is None:
            self._whole(self._behind.popleft())

    def _send(self, header: RequestHeader, answer: Payload) -> None:
        if self._transport is not None:
            self._transport.writelines(
                response_frame(header.api_key, answer, header.api_version, header.correlation_id)
            )


async def _serve(broker: NullBroker) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Client(broker), _HOST, broker.port)
    sys.stdout.write(f"ready on {broker.port}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(NullBroker(int(sys.argv[1]), [int(port) for port in sys.argv[2:]])))
