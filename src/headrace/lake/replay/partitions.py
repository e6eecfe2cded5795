"""Chooses the target partition of a row.

`keep`: its own, if the target has as many partitions. `key`: the one that Kafka's own partitioner (murmur2) chooses for
the key, so that the target's producers and the replay agree. A row without a key goes to its source partition's number
modulo the target's count, so that such rows keep their order. The choice depends only on the row and the count, so a
resumed run makes the same.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import pyarrow as pa

from headrace.lake.records.kernels import Bytes, Int32s, Int64s, compiled

Partitioner = Literal["keep", "key"]

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


@compiled
def _murmur2(data: Bytes, offsets: Int32s, partitions: int, chosen: Int64s) -> None:
    """Kafka's hash of each span of `data` as a partition number; 64-bit arithmetic, truncated to 32 after each step."""
    for index in range(len(chosen)):
        start, end = np.int64(offsets[index]), np.int64(offsets[index + 1])
        length = end - start
        value = (_SEED ^ length) & _MASK
        whole = start + (length & ~3)
        for at in range(start, whole, 4):
            word = np.int64(data[at])
            word |= np.int64(data[at + 1]) << 8
            word |= np.int64(data[at + 2]) << 16
            word |= np.int64(data[at + 3]) << 24
            word = (word * _MULTIPLIER) & _MASK
            word = ((word ^ (word >> 24)) * _MULTIPLIER) & _MASK
            value = ((value * _MULTIPLIER) & _MASK) ^ word
        if whole < end:
            tail = np.int64(0)
            for at in range(whole, end):
                tail |= np.int64(data[at]) << (8 * (at - whole))
            value = ((value ^ tail) * _MULTIPLIER) & _MASK
        value = ((value ^ (value >> 13)) * _MULTIPLIER) & _MASK
        value ^= value >> 15
        chosen[index] = (value & 0x7FFFFFFF) % partitions


def choose(keys: pa.Array, source: int, partitions: int, partitioner: Partitioner) -> Int64s:
    """The target's partition for each of these rows of one source partition."""
    if partitioner == "keep":
        return np.full(len(keys), source, dtype=np.int64)
    chosen = np.empty(len(keys), dtype=np.int64)
    _, offsets, data = keys.buffers()
    spans = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    _murmur2(content, spans, partitions, chosen)
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = source % partitions
    return cast(Int64s, chosen)
