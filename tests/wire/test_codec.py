"""The codec against kio, an implementation of its own: same values, same bytes, in every version of every API."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from headrace.wire import codec
from headrace.wire.apis import snake
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from headrace.wire.messages.txn_offset_commit import TxnOffsetCommitResponse, TxnOffsetCommitResponseTopic
from headrace.wire.schema import ZERO_UUID, Buffer, Message, Payload, Records, fields_of
from tests.wire.random_messages import all_versions, random_message

NOT_IN_KIO = {
    ("ApiVersionsRequest", 5),
    ("ApiVersionsResponse", 5),
    ("DeleteGroupsRequest", 3),
    ("DeleteGroupsResponse", 3),
    ("TxnOffsetCommitRequest", 6),
    ("TxnOffsetCommitResponse", 6),
    ("StreamsGroupHeartbeatRequest", 1),
    ("StreamsGroupHeartbeatResponse", 1),
    ("StreamsGroupDescribeRequest", 1),
    ("StreamsGroupDescribeResponse", 1),
}
DATA = [(cls, v) for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment) for v in range(4)]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EXAMPLES = 6


def kio_class(cls: type[Payload], version: int) -> Any:
    """kio's class of the same message and version."""
    entities: Mapping[Any, str] = schema_name_map[snake(cls.api.name)][version]
    entity = EntityType.data if cls.api.key < 0 else EntityType.response if cls.api.response else EntityType.request
    module, _, name = entities[entity].partition(":")
    return getattr(__import__(module, fromlist=[name]), name)


def both_know() -> list[tuple[type[Payload], int]]:
    return [case for case in all_versions() + DATA if (case[0].__name__, case[1]) not in NOT_IN_KIO]


def names(case: tuple[type[Payload], int]) -> str:
    return f"{case[0].__name__}-v{case[1]}"


def as_ours(value: Any) -> Any:
    """A value of kio as the wire has it."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def assert_equal(ours: Message, theirs: Any, version: int, path: str = "") -> None:
    """Every field of this version has the value that kio read, and kio has no field beside them."""
    present = {f.name: f for f in fields_of(type(ours)) if version in f.versions}
    their_names = {f.name for f in dataclasses.fields(theirs)}
    assert {name if name in their_names else name.removesuffix("_ms") for name in present} == their_names, path
    for name, field in present.items():
        got = getattr(theirs, name if name in their_names else name.removesuffix("_ms"))
        value = getattr(ours, name)
        here = f"{path}.{name}"
        if field.nested is not None and value is not None:
            pairs = zip(value, got, strict=True) if field.is_array else [(value, got)]
            for one, other in pairs:
                assert_equal(one, other, version, here)
        elif field.is_array and value is not None:
            assert value == [as_ours(element) or ZERO_UUID if field.kind == "uuid" else element for element in got], (
                here
            )
        elif got is None and field.kind in ("uuid", "int64"):
            assert value in (ZERO_UUID, -1), here
        else:
            assert value == as_ours(got), here


@pytest.mark.parametrize("case", both_know(), ids=names)
def test_kio_reads_what_we_write_and_writes_what_we_read(case: tuple[type[Payload], int]) -> None:
    cls, version = case
    theirs = kio_class(cls, version)
    read, write = entity_reader(theirs), entity_writer(theirs)
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(EXAMPLES):
        message = random_message(cls, version, rng)
        data = codec.encode_bytes(message, version)

        entity, size = read(data, 0)
        assert size == len(data)
        assert_equal(message, entity, version)

        written = io.BytesIO()
        write(written, entity)
        assert written.getvalue() == data

        assert codec.decode(cls, version, data) == (message, len(data))


@pytest.mark.parametrize("case", [c for c in all_versions() if (c[0].__name__, c[1]) in NOT_IN_KIO], ids=names)
def test_versions_that_kio_does_not_have_read_back_as_written(case: tuple[type[Payload], int]) -> None:
    cls, version = case
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(EXAMPLES):
        message = random_message(cls, version, rng)
        data = codec.encode_bytes(message, version)
        assert codec.decode(cls, version, data) == (message, len(data))


def test_versions_that_kio_does_not_have_are_laid_out_as_kafka_writes_them() -> None:
    request = ApiVersionsRequest("rd", "1", "c", 7)
    assert codec.encode_bytes(request, 5) == b"\x03rd\x021\x02c\0\0\0\x07\0"
    nobody = ApiVersionsRequest("rd", "1")
    assert codec.encode_bytes(nobody, 5) == b"\x03rd\x021\0\xff\xff\xff\xff\0"
    response = DeleteGroupsResponse(3, [DeletableGroupResult("g", 68, "no")])
    assert codec.encode_bytes(response, 3) == b"\0\0\0\x03\x02\x02g\0\x44\x03no\0\0"
    commit = TxnOffsetCommitResponse(3, [TxnOffsetCommitResponseTopic("t", bytes(range(16)), [])])
    assert codec.encode_bytes(commit, 6) == b"\0\0\0\x03\x02" + bytes(range(16)) + b"\x01\0\0"
    heartbeat = StreamsGroupHeartbeatResponse(1, 35, "no", "m", 2, 3, 9, 4, 8, None, None, None, None, True, 5, None)
    assert codec.encode_bytes(heartbeat, 1) == (
        b"\0\0\0\x01\0\x23\x03no\x02m\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\0\0\0\0\x08\0\0\0\0\x01\0\0\0\x05\0\0"
    )


def test_fields_of_other_versions_keep_their_default() -> None:
    old, _ = codec.decode(MetadataRequest, 1, codec.encode_bytes(MetadataRequest(None, False, True, True), 1))
    assert old == MetadataRequest(None)


def test_records_are_views_of_the_frame_not_copies() -> None:
    batch = bytes(range(200))
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])])
    frame = codec.encode_bytes(request, 9)
    decoded, _ = codec.decode(ProduceRequest, 9, frame)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == batch


@pytest.mark.parametrize("version", [4, 12])
def test_record_buffers_are_sent_as_they_are(version: int) -> None:
    batches: list[Buffer] = [bytes(5), bytearray(b"abc"), memoryview(b"de")]
    several: tuple[Records, ...] = (batches, tuple(batches))
    for given in several:
        response = FetchResponse(
            responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=given)])]
        )
        pieces = codec.encode(response, version)
        assert [piece for piece in pieces if any(piece is batch for batch in batches)] == batches
        back, _ = codec.decode(FetchResponse, version, b"".join(pieces))
        assert back.responses[0].partitions[0].records == b"\0\0\0\0\0abcde"


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_that_does_not_exist_is_neither_read_nor_written(version: int) -> None:
    with pytest.raises(codec.DecodeError, match=f"MetadataRequest has no version {version}"):
        codec.decode(MetadataRequest, version, bytes(20))
    with pytest.raises(ValueError, match=f"MetadataRequest has no version {version}"):
        codec.encode(MetadataRequest(), version)
