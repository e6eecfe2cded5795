"""Headers of requests and responses, and the joining of buffers."""

from __future__ import annotations

import io
import struct

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from headrace.wire import codec, frame
from headrace.wire.codec import DecodeError
from headrace.wire.frame import RequestHeader
from headrace.wire.messages.api_versions import ApiVersionsResponse
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größe"])
def test_headers_that_kio_writes_are_read(client_id: str | None) -> None:
    for version, header_class in ((3, KioHeaderV1), (4, KioHeaderV2)):
        written = io.BytesIO()
        header = header_class(
            request_api_key=i16(12), request_api_version=i16(version), correlation_id=i32(-5), client_id=client_id
        )
        entity_writer(header_class)(written, header)
        data = written.getvalue()
        assert frame.read_request_header(data + b"body") == RequestHeader(12, version, -5, client_id, len(data))


def test_a_request_frame_is_length_header_and_message() -> None:
    request = HeartbeatRequest("g", 3, "m")
    for version in range(5):
        data = frame.request_frame(request, version, 77, "me")
        assert struct.unpack_from(">i", data)[0] == len(data) - 4
        header = frame.read_request_header(data[4:])
        assert header == RequestHeader(12, version, 77, "me", header.body)
        assert codec.decode(HeartbeatRequest, version, data[4:], header.body) == (request, len(data) - 4)


def test_unknown_tags_in_a_header_are_skipped() -> None:
    head = struct.pack(">hhih", 12, 4, 1, 1) + b"c"
    assert frame.read_request_header(head + b"\x02" + b"\x00\x03abc" + b"\xe7\x07\x00" + b"body").body == len(head) + 9


def test_a_header_cut_short_anywhere_is_an_error() -> None:
    data = struct.pack(">hhih", 12, 4, 1, 6) + b"client" + b"\x01\x00\x03abc"
    assert frame.read_request_header(data).body == len(data)
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            frame.read_request_header(data[:size])


@pytest.mark.parametrize("size", [-2, -32768, 1, 32767])
def test_a_client_id_outside_the_frame_is_an_error(size: int) -> None:
    with pytest.raises(DecodeError, match="client id"):
        frame.read_request_header(struct.pack(">hhih", 12, 3, 1, size))


@pytest.mark.parametrize(
    "tags", [b"\xff\xff\xff\xff\x0f", b"\x01\x00\xff\xff\xff\xff\x0f", b"\xff" * 9, b"\x02\x00\x00"]
)
def test_hostile_tags_in_a_header_are_an_error(tags: bytes) -> None:
    with pytest.raises(DecodeError):
        frame.read_request_header(struct.pack(">hhih", 12, 4, 1, -1) + tags)


@pytest.mark.parametrize(("api_key", "version"), [(12, 99), (999, 0), (-1, -1), (18, 6)])
def test_of_an_unsupported_version_only_the_fixed_part_is_read(api_key: int, version: int) -> None:
    head = struct.pack(">hhih", api_key, version, 9, 1) + b"c"
    assert frame.read_request_header(head + b"\xff" * 20) == RequestHeader(api_key, version, 9, "c", len(head))


def test_a_client_id_that_is_not_utf8_does_not_stop_the_request() -> None:
    assert frame.read_request_header(struct.pack(">hhih", 12, 0, 1, 2) + b"\xff\xfe").client_id == "��"


@pytest.mark.parametrize(("version", "tags"), [(3, b""), (4, b"\0")])
def test_a_response_has_the_correlation_id_and_tags_if_flexible(version: int, tags: bytes) -> None:
    data = b"".join(frame.response_frame(12, HeartbeatResponse(error_code=27), version, 5))
    body = codec.encode_bytes(HeartbeatResponse(error_code=27), version)
    assert data == struct.pack(">ii", 4 + len(tags) + len(body), 5) + tags + body
    assert frame.response_correlation_id(data[4:]) == 5
    assert data[4:][frame.response_body(12, version, data[4:]) :] == body


def test_the_answer_to_api_versions_always_has_the_old_header() -> None:
    data = b"".join(frame.response_frame(18, ApiVersionsResponse(), 3, 5))
    assert data[8:] == codec.encode_bytes(ApiVersionsResponse(), 3)
    assert frame.response_body(18, 3, data[4:]) == 4


@pytest.mark.parametrize("data", [b"", b"\0\0\0"])
def test_a_response_that_ends_in_its_header_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="ends inside its header"):
        frame.response_correlation_id(data)
    with pytest.raises(DecodeError, match="ends inside its header"):
        frame.response_body(12, 4, data)


def test_small_buffers_are_joined_and_large_ones_kept() -> None:
    large = bytes(20_000)
    assert frame.join_small([b"a", b"b"]) == [b"ab"]
    joined = frame.join_small([b"a", b"b", large, b"c", large, large, b"d", b"e"])
    assert joined == [b"ab", large, b"c", large, large, b"de"]
    assert all(piece is large for piece in joined if len(piece) == len(large))


def test_a_header_has_few_tagged_fields() -> None:
    for count, is_read in ((1_000, True), (1_001, False), ((1 << 35) - 1, False)):
        data = struct.pack(">hhih", 12, 4, 1, -1) + codec.unsigned_varint(count) + b"\x07\0" * min(count, 1_001)
        if is_read:
            assert frame.read_request_header(data).body == len(data)
        else:
            with pytest.raises(DecodeError, match="tagged fields"):
                frame.read_request_header(data)
