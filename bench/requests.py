"""Produce requests of one exact size, sent over raw connections: what one costs the broker, and nothing of a client.

A client decides by itself how much goes into a batch, and a little sooner or later is another workload. Here every
request has the same batches, so the broker's CPU divided by the requests says what the code between the two sockets
takes.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time

import msgspec

from headrace.wire.frame import request_frame
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import Record, encode_batch

PARTITIONS = 6
_VERSION = 9
_IN_FLIGHT = 5
_LENGTH = struct.Struct(">i")


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what."""

    address: str
    topic: str
    requests: int
    connections: int
    partitions: int
    """Of one request."""
    batch_bytes: int
    records: int = 1


async def _run(load: Load) -> None:
    host, port = load.address.rsplit(":", 1)
    each = load.requests // load.connections
    await asyncio.gather(*(_connection(load, host, int(port), place, each) for place in range(load.connections)))


async def _connection(load: Load, host: str, port: int, place: int, requests: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    value = b"x" * (load.batch_bytes // load.records)
    now_ms = time.time_ns() // 1_000_000
    batch = bytes(encode_batch([Record(at, now_ms, None, value, []) for at in range(load.records)]))
    numbers = [(place + at) % PARTITIONS for at in range(load.partitions)]
    data = [PartitionProduceData(number, memoryview(batch)) for number in numbers]
    request = ProduceRequest(None, -1, 10_000, [TopicProduceData(name=load.topic, partition_data=data)])
    frame = bytes(request_frame(request, _VERSION, 0, "bench"))
    sent = answered = 0
    while answered < requests:
        while sent < requests and sent - answered < _IN_FLIGHT:
            writer.write(frame)
            sent += 1
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        await reader.readexactly(size)
        answered += 1
    writer.close()


if __name__ == "__main__":
    asyncio.run(_run(msgspec.json.decode(sys.argv[1], type=Load)))
