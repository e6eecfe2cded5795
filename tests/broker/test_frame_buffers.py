"""Buffers of large requests are used again, and never while somebody still looks at what is in them."""

from __future__ import annotations

import asyncio
import struct
from unittest.mock import Mock

from headrace.broker.network.connection import Connection
from headrace.broker.network.frame_buffers import SIZE_BYTES, FrameBuffers
from headrace.broker.network.server import Server
from headrace.broker.options import BrokerOptions
from headrace.clock import Clock


def frame_of(buffers: FrameBuffers, size_bytes: int = 100_000) -> memoryview:
    frame = buffers.take(size_bytes)
    assert frame is not None
    assert len(frame) == size_bytes
    return frame


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    buffers = FrameBuffers()
    first = frame_of(buffers)
    first[:4] = b"once"
    buffers.give(first)
    assert bytes(frame_of(buffers, SIZE_BYTES)[:4]) == b"once"


def test_a_buffer_with_a_view_on_it_is_left_to_its_viewer() -> None:
    buffers = FrameBuffers()
    frame = frame_of(buffers)
    records = frame[10:14]
    records[:] = b"kept"
    buffers.give(frame)
    frame_of(buffers)[:20] = b"x" * 20
    assert bytes(records) == b"kept"


def test_there_are_so_many_and_each_that_is_lost_is_made_again() -> None:
    buffers = FrameBuffers()
    taken = []
    while (frame := buffers.take(SIZE_BYTES)) is not None:
        taken.append(frame)
    view = taken[0][:1]
    for frame in taken:
        buffers.give(frame)
    assert len(view) == 1
    assert all(buffers.take(SIZE_BYTES) is not None for _ in taken)
    assert buffers.take(SIZE_BYTES) is None


def test_only_sizes_that_are_usual_for_large_requests_have_one() -> None:
    buffers = FrameBuffers()
    assert buffers.take(1_000) is None
    assert buffers.take(SIZE_BYTES + 1) is None
    buffers.give(bytearray(SIZE_BYTES))


async def test_a_large_request_that_cannot_be_read_gives_its_buffer_back() -> None:
    broker = Mock(options=BrokerOptions())
    broker.store.organisations = {"default": None}
    broker.store.clock = Clock()
    broker.authorizer.rights_of.return_value = None
    broker.quotas.is_any = False
    broker.store.tenants.limits.return_value.connections = None
    server = Server(broker)
    spoilt = struct.pack(">ihhih", 100_000, 0, 9, 1, -7).ljust(100_004, b"\0")  # a client id of -7 bytes
    for _ in range(40):
        connection = Connection(server, server.anonymous)
        connection.connection_made(Mock(spec=asyncio.Transport))
        for part in (spoilt[:1_000], spoilt[1_000:]):
            connection.get_buffer(-1)[: len(part)] = part
            connection.buffer_updated(len(part))
        connection.connection_lost(None)
    assert server.frame_buffers.take(100_000) is not None
