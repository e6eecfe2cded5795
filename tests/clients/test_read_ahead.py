"""Consumers behind the tail, which are read ahead for, get what was produced: all of it, once and in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.client import EARLIEST, Client, Sent

PARTITIONS = 3
SENT = [Sent(number % PARTITIONS, None, b"%06d" % number + bytes(number % 2_000)) for number in range(6_000)]
SMALL_FETCHES = {"max.partition.fetch.bytes": 20_000}


@pytest.fixture(scope="module")
def cacheless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker without a tail cache: whoever reads is behind it."""
    process = BrokerProcess(tmp_path_factory.mktemp("cacheless") / "data", tail_cache_bytes=0)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.mark.parametrize("fmt", ["log", "stream"])
def test_a_consumer_from_the_start_gets_everything_in_order(
    cacheless: BrokerProcess, client: Client, topic: str, fmt: str
) -> None:
    client.create_topic(cacheless.address, topic, PARTITIONS, {"headrace.format": fmt})
    client.produce(cacheless.address, topic, SENT, {})
    with client.consumer(cacheless.address, SMALL_FETCHES) as one, client.consumer(cacheless.address, {}) as other:
        for consumer in (one, other):
            consumer.assign(topic, dict.fromkeys(range(PARTITIONS), EARLIEST))
        read = [consumer.read(len(SENT)) for consumer in (one, other)]
    for received in read:
        for partition in range(PARTITIONS):
            mine = [record for record in received if record.partition == partition]
            offsets = [record.offset for record in mine]
            assert offsets == sorted(set(offsets))
            assert [record.value for record in mine] == [record.value for record in SENT[partition::PARTITIONS]]
