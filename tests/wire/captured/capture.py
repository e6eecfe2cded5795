"""Records what real clients send: a scripted broker answers just enough for them to go on, and keeps the frames.

    python -m tests.wire.captured.capture

writes the first request of each API and version that a client sent as `<client>.json` beside this file: hexadecimal
frames without their length. Run it again after a client's upgrade; `test_captured.py` says what they must decode to.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
from aiokafka import admin as aiokafka_admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import admin as kafka_admin

from headrace.wire import codec, frame
from headrace.wire.apis import APIS, request_class, response_class
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from headrace.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from headrace.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.wire.messages.init_producer_id import InitProducerIdResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.wire.messages.sync_group import SyncGroupResponse
from headrace.wire.schema import Payload

TOPIC_ID = bytes(range(16))
ASSIGNED = struct.pack(">h", 0) + codec.encode_bytes(
    ConsumerProtocolAssignment([TopicPartition("orders", [0])], None), 0
)


class ScriptedBroker:
    """One node that owns everything and remembers each kind of request once."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.seen: dict[str, str] = {}
        self.protocol = ""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        stream = peer.makefile("rb")
        with suppress(OSError, ValueError):
            while head := stream.read(4):
                self._answer(peer, stream.read(struct.unpack(">i", head)[0]))

    def _answer(self, peer: socket.socket, data: bytes) -> None:
        header = frame.read_request_header(data)
        api = APIS[header.api_key]
        self.seen.setdefault(f"{api.name} v{header.api_version}", data.hex())
        reply: Payload = self._api_versions(error_code=35)
        version = 0
        if codec.has_version(request_class(api.key), header.api_version):
            request, _ = codec.decode(request_class(api.key), header.api_version, data, header.body)
            reply, version = self.reply(request), header.api_version
        for piece in frame.response_frame(api.key, reply, version, header.correlation_id):
            peer.sendall(piece)

    def reply(self, request: Payload) -> Payload:
        """What lets the client go on."""
        if isinstance(request, JoinGroupRequest):
            self.protocol = request.protocols[0].name
        protocol = self.protocol
        scripted: dict[str, Callable[[], Payload]] = {
            "ApiVersions": self._api_versions,
            "Metadata": self._metadata,
            "InitProducerId": lambda: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            "Produce": lambda: ProduceResponse(
                [TopicProduceResponse(TOPIC_ID, "orders", [PartitionProduceResponse(0, base_offset=0)])]
            ),
            "FindCoordinator": lambda: FindCoordinatorResponse(
                node_id=1, host="127.0.0.1", port=self.port, coordinators=[Coordinator("g", 1, "127.0.0.1", self.port)]
            ),
            "JoinGroup": lambda: JoinGroupResponse(
                generation_id=1, protocol_type="consumer", protocol_name=protocol, leader="other", member_id="m-1"
            ),
            "SyncGroup": lambda: SyncGroupResponse(
                protocol_type="consumer", protocol_name=protocol, assignment=ASSIGNED
            ),
            "ListOffsets": lambda: ListOffsetsResponse(
                topics=[ListOffsetsTopicResponse("orders", [ListOffsetsPartitionResponse(0, offset=0)])]
            ),
            "OffsetFetch": self._offsets,
            "CreateTopics": lambda: CreateTopicsResponse(topics=[CreatableTopicResult("orders", TOPIC_ID)]),
        }
        return scripted.get(request.api.name, response_class(request.api.key))()

    def _api_versions(self, error_code: int = 0) -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code, [ApiVersion(a.key, a.oldest, a.newest) for a in APIS.values()])

    def _offsets(self) -> OffsetFetchResponse:
        newer = OffsetFetchResponseTopics(TOPIC_ID, "orders", [OffsetFetchResponsePartitions(0, 3)])
        older = OffsetFetchResponseTopic("orders", [OffsetFetchResponsePartition(0, 3)])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [newer])], topics=[older])

    def _metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(name="orders", topic_id=TOPIC_ID, partitions=[partition])
        broker = MetadataResponseBroker(1, "127.0.0.1", self.port)
        return MetadataResponse(brokers=[broker], cluster_id="c", controller_id=1, topics=[topic])


def run_confluent_kafka(address: str) -> None:
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": address}
    topic = NewTopic("orders", 3, 1, config={"retention.ms": "60000"})
    administrator = AdminClient(settings)
    administrator.create_topics([topic])["orders"].result(10)
    producer = confluent_kafka.Producer(settings)
    producer.produce("orders", b"value", b"key", partition=0, headers=[("h", b"1")], timestamp=1_700_000_000_000)
    producer.flush(10)
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    consumer.poll(5)
    with suppress(confluent_kafka.KafkaException):
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 5, metadata="mark")], asynchronous=False)
    consumer.close()


def run_kafka_python(address: str) -> None:
    administrator = kafka_admin.KafkaAdminClient(bootstrap_servers=address)
    administrator.create_topics([kafka_admin.NewTopic("orders", 3, 1, topic_configs={"retention.ms": "60000"})])
    administrator.close()
    producer = kafka.KafkaProducer(bootstrap_servers=address)
    sent = producer.send("orders", b"value", b"key", [("h", b"1")], 0, 1_700_000_000_000)
    producer.flush(10)
    sent.get(10)
    consumer = kafka.KafkaConsumer("orders", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest")
    consumer.poll(3000)
    mark = kafka.structs.OffsetAndMetadata(5, "mark", -1)
    with suppress(kafka.errors.KafkaError, AssertionError, KeyError):
        consumer.commit({kafka.TopicPartition("orders", 0): mark}, timeout_ms=2000)
    consumer.close(autocommit=False, timeout_ms=2000)


def run_aiokafka(address: str) -> None:
    asyncio.run(_run_aiokafka(address))


async def _run_aiokafka(address: str) -> None:
    administrator = aiokafka_admin.AIOKafkaAdminClient(bootstrap_servers=address)
    await administrator.start()
    topic = aiokafka_admin.NewTopic("orders", 3, 1, topic_configs={"retention.ms": "60000"})
    await administrator.create_topics([topic])
    await administrator.close()
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address)
    await producer.start()
    await producer.send_and_wait("orders", b"value", b"key", 0, 1_700_000_000_000, [("h", b"1")])
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    await consumer.getmany(timeout_ms=1000)
    with suppress(Exception):
        await asyncio.wait_for(consumer.commit({aiokafka.TopicPartition("orders", 0): (5, "mark")}), 2)
    await consumer.stop()


CLIENTS = {"confluent-kafka": run_confluent_kafka, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka}


def main() -> None:
    for name, run in CLIENTS.items():
        broker = ScriptedBroker()
        run(f"127.0.0.1:{broker.port}")
        broker.listener.close()
        text = json.dumps(broker.seen, indent=1, sort_keys=True) + "\n"
        (Path(__file__).parent / f"{name}.json").write_text(text)
        print(name, ", ".join(sorted(broker.seen)))


if __name__ == "__main__":
    main()
