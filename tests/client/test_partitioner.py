"""Keys land where Kafka's own producers put them."""

from __future__ import annotations

from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from headrace.client.partitioner import murmur2, partition_for_key


@given(st.binary(max_size=70))
def test_murmur2_is_kafka_pythons(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 300))
def test_partitions_are_aiokafkas(key: bytes, count: int) -> None:
    partitions = list(range(count))
    assert partition_for_key(key, count) == DefaultPartitioner()(key, partitions, partitions)


def test_murmur2_gives_the_values_of_kafkas_own_test() -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) - (1 << 32) for key in known} == known
