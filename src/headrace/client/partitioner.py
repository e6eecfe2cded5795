"""The partition of a key, by Kafka's murmur2: the same that Kafka's own producers choose."""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key, as Kafka's default partitioner and librdkafka's `murmur2_random` choose it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits, with Kafka's seed."""
    whole = len(data) & ~3
    value = (_SEED ^ len(data)) & _MASK
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if tail := data[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
