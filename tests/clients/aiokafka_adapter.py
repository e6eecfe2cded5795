"""aiokafka behind the interface of client.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.clients.client import (
    EARLIEST,
    READ_TIMEOUT_S,
    Client,
    Consumer,
    DeliveryFailed,
    Received,
    Sent,
    Start,
    received,
    with_underscores,
)

T = TypeVar("T")


class AioKafka(Client):
    name = "aiokafka"
    takes_empty_records = False

    def create_topic(self, address: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        async def create() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=address)
            await admin.start()
            try:
                await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(configs))])
            finally:
                await admin.close()

        asyncio.run(create())

    def produce(self, address: str, topic: str, records: Iterable[Sent], settings: Mapping[str, Any]) -> list[int]:
        async def produce() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, **with_underscores(settings))
            await producer.start()
            try:
                sent = [
                    await producer.send(topic, r.value, r.key, r.partition, r.timestamp, list(r.headers))
                    for r in records
                ]
                outcomes = await asyncio.wait_for(asyncio.gather(*sent), READ_TIMEOUT_S)
                return [-1 if outcome is None else outcome.offset for outcome in outcomes]
            except aiokafka.errors.KafkaError as error:
                raise DeliveryFailed(getattr(error, "errno", -1), str(error)) from error
            finally:
                await producer.stop()

        return asyncio.run(produce())

    def consumer(self, address: str, settings: Mapping[str, Any]) -> Consumer:
        return AioConsumer(address, with_underscores(settings))

    def begin_transactions(self, address: str) -> None:
        async def begin() -> None:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id="mover")
            try:
                await producer.start()
                await producer.begin_transaction()
            finally:
                await producer.stop()

        asyncio.run(begin())


class AioConsumer(Consumer):
    """Runs a loop of its own in a thread, so that the consumer fetches while the test does something else."""

    def __init__(self, address: str, settings: Mapping[str, Any]) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()
        self._consumer = self._run(self._make(address, settings))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(READ_TIMEOUT_S)

    async def _make(self, address: str, settings: Mapping[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, **settings)
        await consumer.start()
        return consumer

    def assign(self, topic: str, start: Mapping[int, Start]) -> None:
        async def assign() -> None:
            places = {aiokafka.TopicPartition(topic, index): at for index, at in start.items()}
            self._consumer.assign(list(places))
            for place, at in places.items():
                if isinstance(at, int):
                    self._consumer.seek(place, at)
                elif at == EARLIEST:
                    await self._consumer.seek_to_beginning(place)
                else:
                    await self._consumer.seek_to_end(place)

        self._run(assign())

    def poll(self, timeout_s: float) -> list[Received]:
        found = self._run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [received(record) for records in found.values() for record in records]

    def offsets_at(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        asked = {aiokafka.TopicPartition(topic, index): at for index, at in times.items()}
        found = self._run(self._consumer.offsets_for_times(asked))
        return {place.partition: None if at is None else at.offset for place, at in found.items()}

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = aiokafka.TopicPartition(topic, partition)
        first = self._run(self._consumer.beginning_offsets([place]))
        return first[place], self._run(self._consumer.end_offsets([place]))[place]

    def partitions(self, topic: str) -> set[int]:
        async def look() -> set[int]:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._address)
            await admin.start()
            try:
                (found,) = await admin.describe_topics([topic])
            finally:
                await admin.close()
            return {partition["partition"] for partition in found["partitions"]}

        return self._run(look())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
