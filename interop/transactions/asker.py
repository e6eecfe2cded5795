"""A transactional producer by hand, in any version of each request. What it hears is kept in a form to compare."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from headrace.client.connection import BrokerConnection
from headrace.wire.batch import TRANSACTIONAL, BatchHeader, iter_headers, read_header, seal
from headrace.wire.control import read_marker
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.records import Record, decode_batch, encode_batch

Producer = tuple[int, int]
Answer = tuple[Any, ...]
NOBODY: Producer = (-1, -1)
PATIENCE_S = 30.0
_PASSING = (14, 15, 16)
_BUSY = 51


class Asker:
    """One broker, and the topic that everything goes to."""

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self._names: dict[int, str] = {}

    def ask(self, request: Any, version: int | None = None) -> Any:
        return self.connection.send(request, version)

    def named(self, producer_id: int) -> str:
        """A producer id by the order in which it was first seen: no two brokers give out the same."""
        return "-" if producer_id < 0 else self._names.setdefault(producer_id, f"producer {len(self._names)}")

    def shown(self, producer: Producer) -> Answer:
        return self.named(producer[0]), producer[1]

    # -- the coordinator ----------------------------------------------------------------------------------------

    def init(
        self, name: str, producer: Producer = NOBODY, *, version: int = 5, timeout_ms: int = 60_000
    ) -> tuple[int, Producer]:
        """Once the coordinator is there at all."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(InitProducerIdRequest(name, timeout_ms, *producer), version)
            if answer.error_code not in _PASSING or time.monotonic() > deadline:
                return answer.error_code, (answer.producer_id, answer.producer_epoch)
            time.sleep(0.05)

    def init_patiently(self, name: str, producer: Producer = NOBODY) -> tuple[int, Producer]:
        """Until what is being ended has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.init(name, producer))[0] == _BUSY and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def end(self, name: str, producer: Producer, *, commit: bool, version: int) -> tuple[int, Producer]:
        answer = self.ask(EndTxnRequest(name, *producer, commit), version)
        return answer.error_code, (answer.producer_id, answer.producer_epoch) if version >= 5 else NOBODY

    def state(self, name: str) -> Any:
        return self.ask(DescribeTransactionsRequest([name])).transaction_states[0]

    def settle(self, name: str) -> str:
        """The state, once nothing is being ended."""
        deadline = time.monotonic() + PATIENCE_S
        while (state := self.state(name).transaction_state).startswith("Prepare") and time.monotonic() < deadline:
            time.sleep(0.02)
        return str(state)

    def add(self, name: str, producer: Producer, *places: tuple[str, int], version: int = 3) -> list[int]:
        topics = [AddPartitionsToTxnTopic(topic, [number]) for topic, number in places]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
        rows = self.ask(request, version).results_by_topic_v3_and_below
        codes = {(row.name, one.partition_index): one for row in rows for one in row.results_by_partition}
        return [codes[place].partition_error_code for place in places]

    def add_group(self, name: str, producer: Producer, group: str, *, version: int = 3) -> int:
        code: int = self.ask(AddOffsetsToTxnRequest(name, *producer, group), version).error_code
        return code

    # -- partitions and groups ----------------------------------------------------------------------------------

    def produce(
        self,
        name: str | None,
        producer: Producer,
        sequence: int = 0,
        *,
        number: int = 0,
        version: int = 12,
        transactional: bool = True,
    ) -> int:
        made = memoryview(bytearray(batch_of(producer, sequence, transactional=transactional)))
        data = TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(number, made)])
        answer = self.ask(ProduceRequest(name, -1, 5_000, [data]), version)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    def commit_offset(
        self, name: str, producer: Producer, group: str, offset: int = 3, *, version: int = 5, **more: Any
    ) -> int:
        rows = [TxnOffsetCommitRequestPartition(0, offset, committed_metadata=more.pop("metadata", ""))]
        topic = TxnOffsetCommitRequestTopic(more.pop("topic", self.topic), partitions=rows)
        request = TxnOffsetCommitRequest(name, group, *producer, topics=[topic], **more)
        code: int = self.ask(request, version).topics[0].partitions[0].error_code
        return code

    def committed(self, group: str, *, stable: bool) -> tuple[int, int]:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )
        row = self.ask(request, 9).groups[0].topics[0].partitions[0]
        return row.error_code, row.committed_offset

    def offset(self, timestamp: int, isolation: int, number: int = 0) -> int:
        asked = ListOffsetsTopic(self.topic, [ListOffsetsPartition(partition_index=number, timestamp=timestamp)])
        row = self.ask(ListOffsetsRequest(-1, isolation, [asked]), 7).topics[0].partitions[0]
        return -row.error_code if row.error_code > 1 else int(row.offset)

    def fetch(self, isolation: int, offset: int = 0, number: int = 0) -> Answer:
        """What a reader is given from an offset on, with the batches taken apart, and what it is told to leave out.

        How many batches come at once is a broker's own matter, so it reads on until nothing comes.
        """
        batches: list[Answer] = []
        left_out: set[Answer] | None = set() if isolation else None
        while True:
            asked = FetchPartition(number, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=10, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation)
            request.topics = [FetchTopic(topic=self.topic, partitions=[asked])]
            data = self.ask(request, 12).responses[0].partitions[0]
            raw = bytes(data.records or b"")
            if data.aborted_transactions is None:
                left_out = None
            for one in data.aborted_transactions or ():
                assert left_out is not None
                left_out.add((one.first_offset, self.named(one.producer_id)))
            if not raw:
                return data.error_code, data.high_watermark, data.last_stable_offset, left_out, batches
            batches += self._batches(raw)
            offset = [header.next_offset for _, header in iter_headers(raw)][-1]

    def _batches(self, raw: bytes) -> Iterator[Answer]:
        for pos, header in iter_headers(raw):
            place = header.base_offset, self.named(header.producer_id), header.producer_epoch
            if header.is_control:
                marker = read_marker(raw, pos)
                assert marker is not None
                yield *place, header.attributes, header.base_sequence, "commit" if marker.commit else "abort"
            else:
                values = [record.value for record in decode_batch(raw[pos : pos + header.length])]
                yield *place, header.attributes, header.base_sequence, *values


def batch_of(producer: Producer, sequence: int, *, transactional: bool, values: Iterable[bytes] = (b"v",)) -> bytes:
    records = [Record(at, 1_700_000_000_000, b"k", value) for at, value in enumerate(values)]
    made = encode_batch(records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence)
    header = read_header(made)
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    fields["attributes"] |= TRANSACTIONAL if transactional else 0
    return seal(BatchHeader(**fields), made[61:])
