"""A confluent-kafka producer that goes on through trouble, and the proof of what it was promised.

It is idempotent and keeps the client's own patience: what the broker or the store does meanwhile is for the client to
get over. Every record carries its number, so the log itself shows what is missing, doubled or out of order.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import confluent_kafka

from tests.broker_process import wait_until
from tests.clients.adapters import CLIENTS
from tests.clients.client import EARLIEST
from tests.faults.witnesses import first_difference

CONFLUENT = CLIENTS[0]


class SteadyProducer:
    """Produces numbers to each partition in turn, in a thread, until it is told to stop."""

    def __init__(self, addresses: str, topic: str, partitions: int = 3, value_bytes: int = 100) -> None:
        self.topic, self.partitions = topic, partitions
        self.acknowledged = 0
        self.failures: list[str] = []
        self._offsets: dict[int, dict[int, int]] = {index: {} for index in range(partitions)}
        self._padding = bytes(value_bytes)
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": addresses,
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.max.ms": 200,
                "queue.buffering.max.messages": 5_000,
            }
        )
        self._thread = threading.Thread(target=self._run, name="producer")

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def goes_on(self, more: int = 1_000) -> None:
        """Returns once so many more records were acknowledged."""
        goal = self.acknowledged + more
        wait_until(lambda: self.acknowledged >= goal or bool(self.failures), "the producer is stuck", timeout_s=60)
        assert self.failures == []

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(self.partitions):
                self._produce(partition, number)
            number += 1
            self._producer.poll(0)
        left = self._producer.flush(60)
        if left:
            self.failures.append(f"{left} records were never answered")

    def _produce(self, partition: int, number: int) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{partition}.{number}: {error}")
            else:
                self._offsets[partition][number] = message.offset()
                self.acknowledged += 1

        while True:
            try:
                value = b"%d " % number + self._padding
                self._producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.05)

    def check(self, addresses: str) -> None:
        """Every acknowledged record is there once, in order, at the offset that was answered; offsets are dense."""
        assert self.failures == []
        for partition, offsets in self._offsets.items():
            assert offsets, f"nothing was acknowledged in partition {partition}"
            with CONFLUENT.consumer(addresses, {"group.id": "proof"}) as consumer:
                start, end = consumer.bounds(self.topic, partition)
                consumer.assign(self.topic, {partition: EARLIEST})
                found = consumer.read(end - start)
            assert [record.offset for record in found] == list(range(end))
            numbers = [int((record.value or b"").split(b" ")[0]) for record in found]
            assert numbers == list(range(end)), f"partition {partition}: {first_difference(numbers)}"
            assert offsets == {number: number for number in range(end)}
