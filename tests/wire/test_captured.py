"""Requests that real clients sent, byte for byte: they decode to what the client was asked to do.

Each client was told the same: create `orders` (3 partitions, retention.ms 60000), produce one record with key, header
and timestamp to partition 0, read in group `g`, commit offset 5 with a note. `captured/capture.py` made the files.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TypeVar

import pytest

from headrace.wire import codec, frame
from headrace.wire.apis import APIS, request_class
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.fetch import FetchRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.join_group import JoinGroupRequest
from headrace.wire.messages.leave_group import LeaveGroupRequest
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.offset_commit import OffsetCommitRequest
from headrace.wire.messages.offset_fetch import OffsetFetchRequest
from headrace.wire.messages.produce import ProduceRequest
from headrace.wire.messages.sync_group import SyncGroupRequest
from headrace.wire.schema import Payload

P = TypeVar("P", bound=Payload)
CAPTURED = Path(__file__).parent / "captured"
TOPIC_ID = bytes(range(16))
CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka"]


def frames(client: str) -> dict[str, bytes]:
    """`Fetch v12` -> the frame without its length."""
    return {name: bytes.fromhex(text) for name, text in json.loads((CAPTURED / f"{client}.json").read_text()).items()}


def sent(client: str, cls: type[P]) -> tuple[P, int]:
    """The client's request of this kind and its version."""
    data = next(data for name, data in frames(client).items() if name.startswith(cls.api.name + " v"))
    header = frame.read_request_header(data)
    message, end = codec.decode(cls, header.api_version, data, header.body)
    assert end == len(data)
    return message, header.api_version


@pytest.mark.parametrize("client", CLIENTS)
def test_every_captured_request_is_written_again_byte_for_byte(client: str) -> None:
    for name, data in frames(client).items():
        header = frame.read_request_header(data)
        message, end = codec.decode(request_class(header.api_key), header.api_version, data, header.body)
        assert f"{APIS[header.api_key].name} v{header.api_version}" == name
        assert end == len(data), name
        assert header.client_id is not None
        again = frame.request_frame(message, header.api_version, header.correlation_id, header.client_id)
        assert again == struct.pack(">i", len(data)) + data, name


@pytest.mark.parametrize("client", CLIENTS)
def test_create_topics_asks_for_the_topic_and_its_config(client: str) -> None:
    request, _ = sent(client, CreateTopicsRequest)
    assert request.topics == [CreatableTopic("orders", 3, 1, [], [CreatableTopicConfig("retention.ms", "60000")])]
    assert request.validate_only is False


@pytest.mark.parametrize("client", CLIENTS)
def test_produce_carries_one_batch_for_partition_0(client: str) -> None:
    request, _ = sent(client, ProduceRequest)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, request.transactional_id) == ("orders", 0, None)
    assert request.acks == (1 if client == "aiokafka" else -1)
    batch = bytes(partition.records)  # type: ignore[arg-type]
    length, magic = struct.unpack_from(">8xi4xb", batch)
    assert (length + 12, magic) == (len(batch), 2)
    assert b"key" in batch
    assert b"value" in batch


@pytest.mark.parametrize("client", CLIENTS)
def test_fetch_starts_at_the_committed_offset(client: str) -> None:
    request, version = sent(client, FetchRequest)
    (topic,) = request.topics
    assert (topic.topic_id == TOPIC_ID) if version >= 13 else (topic.topic == "orders")
    assert [(p.partition, p.fetch_offset) for p in topic.partitions] == [(0, 3)]
    assert (request.replica_id, request.max_wait_ms, request.min_bytes) == (-1, 500, 1)


@pytest.mark.parametrize("client", CLIENTS)
def test_join_group_subscribes_to_the_topic(client: str) -> None:
    request, _ = sent(client, JoinGroupRequest)
    assert (request.group_id, request.protocol_type, request.member_id) == ("g", "consumer", "")
    assert request.session_timeout_ms == (10_000 if client == "aiokafka" else 45_000)
    for protocol in request.protocols:
        (version,) = struct.unpack_from(">h", protocol.metadata)
        subscription, end = codec.decode(ConsumerProtocolSubscription, version, protocol.metadata, 2)
        assert subscription.topics == ["orders"]
        assert end == len(protocol.metadata)


@pytest.mark.parametrize("client", CLIENTS)
def test_members_sync_and_leave_with_the_id_they_were_given(client: str) -> None:
    sync, _ = sent(client, SyncGroupRequest)
    assert (sync.group_id, sync.generation_id, sync.member_id, sync.assignments) == ("g", 1, "m-1", [])
    leave, version = sent(client, LeaveGroupRequest)
    assert [m.member_id for m in leave.members] == ["m-1"] if version >= 3 else leave.member_id == "m-1"


@pytest.mark.parametrize("client", CLIENTS)
def test_offsets_are_looked_up_and_committed_for_the_group(client: str) -> None:
    coordinator, version = sent(client, FindCoordinatorRequest)
    assert (coordinator.coordinator_keys if version >= 4 else [coordinator.key]) == ["g"]
    lookup, version = sent(client, OffsetFetchRequest)
    asked = [(g.group_id, t.name, t.partition_indexes) for g in lookup.groups for t in g.topics or []]
    asked += [(lookup.group_id, t.name, t.partition_indexes) for t in lookup.topics or []]
    assert asked == [("g", "orders", [0])]
    commit, _ = sent(client, OffsetCommitRequest)
    (topic,) = commit.topics
    (partition,) = topic.partitions
    assert (commit.group_id, commit.generation_id_or_member_epoch, commit.member_id) == ("g", 1, "m-1")
    # confluent-kafka sends the zero that ends its C string along with the note.
    note = "mark\0" if client == "confluent-kafka" else "mark"
    assert (topic.name, partition.partition_index, partition.committed_offset) == ("orders", 0, 5)
    assert partition.committed_metadata == note


def test_clients_say_who_they_are() -> None:
    assert sent("confluent-kafka", ApiVersionsRequest)[0].client_software_name == "confluent-kafka-python"
    assert sent("kafka-python", ApiVersionsRequest)[0].client_software_name == "kafka-python"
    assert sent("aiokafka", ApiVersionsRequest) == (ApiVersionsRequest(), 0)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_metadata_request_asks_for_no_topic(client: str) -> None:
    request, _ = sent(client, MetadataRequest)
    assert request.topics == []
