"""Performs a random program on one broker, and tells what it answered."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from headrace.client.errors import BrokerUnreachable
from headrace.wire.apis import APIS
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import request_frame
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.wire.schema import Payload
from tests.broker.peers import create_topic, metadata
from tests.broker_process import BrokerProcess, wait_until
from tests.fuzz import program as p
from tests.fuzz.damaged import built
from tests.fuzz.line import CLOSED, Answer, Line
from tests.fuzz.members import Members
from tests.fuzz.normalised import Names, next_offset, shown

_NO_ID = bytes(16)
_LONG_MS = 600_000
_LATEST, _EARLIEST = -1, -2
_SETTLED = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})

Place = tuple[str, int]


class Performer:
    """One broker, with topics and ids of its own for each program."""

    def __init__(self, broker: BrokerProcess, prefix: str, now_ms: int) -> None:
        self._broker, self._prefix, self._now_ms = broker, prefix, now_ms
        self.names = Names()
        self._lines = [self._connect() for _ in range(p.CONNECTIONS + 1)]
        self._ids: dict[str, bytes] = {}
        self._ends: dict[Place, int] = defaultdict(int)
        self._bases: dict[Place, list[int]] = defaultdict(list)
        """Where batches were appended."""
        self._sequences: dict[tuple[int, Place], int] = defaultdict(int)
        self._sessions: dict[int, tuple[int, int]] = {}
        self._producers: dict[int, tuple[int, int]] = {}
        self.members = Members(prefix, self.names, self._connect)
        for topic in p.PARTITIONS:
            self._create(topic)
        for number in (*p.IDEMPOTENT, *p.TRANSACTIONAL):
            self._init(number)

    def _connect(self) -> Line:
        return Line(self._broker)

    def topic(self, name: str) -> str:
        return name if name == p.INTERNAL else f"{self._prefix}-{name}"

    def _create(self, topic: str) -> None:
        name, line = self.topic(topic), self._lines[-1]
        create_topic(line, name, p.PARTITIONS[topic], p.CONFIGS.get(topic))
        (found,) = metadata(line, name).topics
        self._ids[topic] = found.topic_id
        self.names.give(found.topic_id, f"id of {topic}")
        self.names.give(name, topic)

    def _transactional(self, number: int) -> str:
        return f"{self._prefix}-t{number}"

    def _init(self, number: int) -> Answer:
        name = self._transactional(number) if number in p.TRANSACTIONAL else None
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_LONG_MS)
        answer = self._lines[-1].send_for(request, InitProducerIdResponse, 4)
        if not answer.error_code:
            self._producers[number] = answer.producer_id, answer.producer_epoch
            self.names.give(answer.producer_id, f"producer {number}")
            for key in [key for key in self._sequences if key[0] == number]:
                del self._sequences[key]
        return answer

    def close(self) -> None:
        self.members.close()
        for line in self._lines:
            line.close()

    # -- steps --------------------------------------------------------------------------------------------------

    def perform(self, at: int, step: p.Step) -> Any:
        """What came of a step, to be compared."""
        if isinstance(step, p.Pipeline):
            return [self.names.normalised(one) for one in self._pipeline(at, step)]
        if isinstance(step, p.Park):
            return self._park(at, step)
        if isinstance(step, p.Transact):
            return self.names.normalised(self._transact(step))
        if isinstance(step, p.Administer):
            return self.names.normalised(self._administer(at, step))
        if isinstance(step, p.Member):
            return self.members.perform(step)
        return self.names.normalised(self._ask(at, step))

    def _ask(self, at: int, step: p.Produce | p.Fetch) -> Answer:
        request = self._request(step)
        line = self._line(at)
        if isinstance(step, p.Produce) and step.acks == 0:
            line.tell(request, step.version)
            answer = self._answer(line, ApiVersionsRequest("fuzz", "1"), 3)
            return answer if isinstance(answer, str) else "no answer"
        answer = self._answer(line, request, step.version)
        self._learn(step, request, answer)
        return answer

    def _line(self, at: int) -> Line:
        if not self._lines[at].is_open:
            self._lines[at] = self._connect()
        return self._lines[at]

    def _answer(self, line: Line, request: Payload, version: int) -> Answer:
        line.ask(request, version)
        return line.next_answer()

    def _pipeline(self, at: int, step: p.Pipeline) -> list[Answer]:
        line = self._line(at)
        asked: list[tuple[p.Request, Payload]] = []
        data = bytearray()
        for one in step.requests:
            request = self.members.request(one) if isinstance(one, p.Member) else self._request(one)
            asked.append((one, request))
            data += line.frame_of(request, one.version, is_answered=not _is_silent(one))
        for start in range(0, len(data), step.piece_bytes):
            line.send_bytes(bytes(data[start : start + step.piece_bytes]))
        found: list[Answer] = []
        for one, request in asked:
            if _is_silent(one):
                continue
            answer = line.next_answer()
            found.append(answer)
            if answer == CLOSED:
                break
            self._learn(one, request, answer)
        else:
            self._answer(line, ApiVersionsRequest("fuzz", "1"), 3)  # all that was silent is done, too
        return found

    def _park(self, at: int, step: p.Park) -> Any:
        """How much a waiting fetch gets is a matter of time, but not what it begins with."""
        waiting = self._lines[-1]
        (wanted,) = step.fetch.wanted
        place = wanted.topic, wanted.partition
        self._ends[place] = self._bound(place, _LATEST)
        request = self._request(step.fetch)
        (asked,) = request.topics[0].partitions
        waiting.ask(request, step.fetch.version)
        told = [self.names.normalised(self._ask(at, one)) for one in step.produced]
        answer = waiting.receive()
        assert isinstance(answer, FetchResponse)
        (data,) = answer.responses[0].partitions
        assert isinstance(data.records, bytes | memoryview)
        assert data.records, "a fetch that waited got nothing"
        records = bytes(data.records)
        assert read_header(records).base_offset >= asked.fetch_offset
        assert next_offset(records) <= data.high_watermark
        return told, data.error_code, self.names.batches(records)[0]

    # -- requests -----------------------------------------------------------------------------------------------

    def _request(self, step: p.Produce | p.Fetch) -> Any:
        return self._produce(step) if isinstance(step, p.Produce) else self._fetch(step)

    def _produce(self, step: p.Produce) -> ProduceRequest:
        name = None if step.transactional is None else self._transactional(step.transactional)
        request = ProduceRequest(transactional_id=name, acks=step.acks, timeout_ms=step.timeout_ms)
        for topic, number, batch in step.parts:
            if not request.topic_data or request.topic_data[-1].name != self.topic(topic):
                known = self._ids.get(topic, _NO_ID)
                request.topic_data.append(TopicProduceData(name=self.topic(topic), topic_id=known, partition_data=[]))
            producer, sequence = (-1, -1), -1
            if batch.producer is not None:
                id, epoch = self._producers[batch.producer]
                producer, sequence = (id, max(epoch + batch.epoch_shift, 0)), self._sequence(topic, number, batch)
            data = PartitionProduceData(number, built(batch, self._now_ms, producer, sequence))
            request.topic_data[-1].partition_data.append(data)
        return request

    def _sequence(self, topic: str, number: int, batch: p.Batch) -> int:
        assert batch.producer is not None
        key, count = (batch.producer, (topic, number)), len(batch.values)
        following = self._sequences[key]
        if batch.sequence == "next":
            self._sequences[key] = following + count
            return following
        back = max(following - (2 if batch.sequence == "two-back" else count), 0)
        return {"gap": following + 3, "first": 0}.get(batch.sequence, back)

    def _fetch(self, step: p.Fetch) -> FetchRequest:
        session_id, epoch = 0, -1
        if step.mode == "new":
            epoch = 0
        elif step.mode != "none":
            session_id, epoch = self._sessions.get(step.session, (77, 1))
            if step.mode == "close":
                epoch = -1
            elif step.mode == "wrong":
                epoch += 1
            elif step.session in self._sessions and step.version >= 7:
                self._sessions[step.session] = session_id, epoch + 1
        request = FetchRequest(
            max_wait_ms=step.max_wait_ms,
            min_bytes=step.min_bytes,
            max_bytes=step.max_bytes,
            isolation_level=int(step.committed),
            session_id=session_id,
            session_epoch=epoch,
        )
        for one in step.wanted:
            wanted = FetchPartition(one.partition, one.epoch, self._offset(one), partition_max_bytes=one.max_bytes)
            topic_id = self._ids.get(one.topic, _NO_ID)
            request.topics.append(FetchTopic(topic=self.topic(one.topic), topic_id=topic_id, partitions=[wanted]))
        for topic, number in step.forgotten:
            topic_id = self._ids.get(topic, _NO_ID)
            request.forgotten_topics_data.append(
                ForgottenTopic(topic=self.topic(topic), topic_id=topic_id, partitions=[number])
            )
        return request

    def _offset(self, wanted: p.Wanted) -> int:
        place = wanted.topic, wanted.partition
        if not wanted.from_end:
            return wanted.at
        if wanted.topic.startswith("stream") and wanted.at:  # made of times: there is no counting from the end
            bases = [0] * 5 + self._bases[place]
            return bases[wanted.at] if wanted.at < 0 else 1 << 60
        return max(self._ends[place] + wanted.at, 0)

    def _learn(self, step: p.Request, request: Payload, answer: Answer) -> None:
        """Ends, sequences and sessions as the broker told them."""
        if isinstance(answer, ProduceResponse) and isinstance(step, p.Produce):
            told = [one for topic in answer.responses for one in topic.partition_responses]
            for (topic, number, batch), one in zip(step.parts, told, strict=True):
                if not one.error_code:
                    place = topic, number
                    self._ends[place] = max(self._ends[place], one.base_offset + len(batch.values))
                    self._bases[place].append(one.base_offset)
                elif batch.producer is not None and batch.sequence == "next":
                    key = batch.producer, (topic, number)
                    self._sequences[key] = max(self._sequences[key] - len(batch.values), 0)
        elif isinstance(answer, FetchResponse) and isinstance(step, p.Fetch) and step.version >= 7:
            if step.mode == "new" and answer.session_id:
                self._sessions[step.session] = answer.session_id, 1
            elif step.mode == "close" or answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._sessions.pop(step.session, None)

    # -- other steps --------------------------------------------------------------------------------------------

    def _transact(self, step: p.Transact) -> Answer:
        name, (id, epoch) = self._transactional(step.producer), self._producers[step.producer]
        line = self._lines[-1]
        if step.what == "init":
            begun = self._init(step.producer)
            self._settle(name)
            return begun
        if step.what == "add":
            topics = [AddPartitionsToTxnTopic(self.topic(topic), [number]) for topic, number in step.parts]
            return line.send(AddPartitionsToTxnRequest([], name, id, epoch, topics), 3)
        answer = line.send(EndTxnRequest(name, id, epoch, step.what == "commit"), 3)
        if not getattr(answer, "error_code", 0):
            self._settle(name)
        return answer

    def _settle(self, name: str) -> None:
        """Waits for the markers: what they stand between is a matter of time."""

        def is_settled() -> bool:
            asked = DescribeTransactionsRequest([name])
            (state,) = self._lines[-1].send_for(asked, DescribeTransactionsResponse, 0).transaction_states
            return state.transaction_state in _SETTLED

        wait_until(is_settled, f"{name} does not end")

    def _administer(self, at: int, step: p.Administer) -> Answer:
        line = self._lines[-1]
        if step.what == "trim":
            trim = DeleteRecordsTopic(self.topic(step.topic), [DeleteRecordsPartition(0, step.offset)])
            return line.send(DeleteRecordsRequest([trim], 30_000), 2)
        if step.what == "recreate":
            answer = line.send(DeleteTopicsRequest([DeleteTopicState(self.topic(step.topic))], timeout_ms=30_000), 6)
            self._create(step.topic)
            self._ends[step.topic, 0] = 0
            return answer
        chance = random.Random(step.offset)
        key = chance.choice([p.PRODUCE, p.FETCH, p.JOIN, p.SYNC, p.HEARTBEAT])
        frame = bytearray(request_frame(ApiVersionsRequest("fuzz", "1"), 3, 5, "fuzz")[4:])
        frame[0:4] = bytes([0, key, 0, APIS[key].newest])
        return self._garbled(self._line(at), bytes(frame[:-4]) + chance.randbytes(chance.randrange(40)))

    def _garbled(self, line: Line, frame: bytes) -> str:
        line.send_frame(frame)
        try:
            return line.read_frame().hex()
        except BrokerUnreachable:
            return CLOSED

    # -- the end ------------------------------------------------------------------------------------------------

    def _bound(self, place: Place, which: int) -> int:
        wanted = ListOffsetsTopic(self.topic(place[0]), [ListOffsetsPartition(place[1], -1, which)])
        answer = self._lines[-1].send_for(ListOffsetsRequest(-1, 0, [wanted]), ListOffsetsResponse, 6)
        return answer.topics[0].partitions[0].offset

    def _read(self, place: Place, offset: int, *, committed: bool) -> Any:
        topic, number = place
        wanted = FetchPartition(number, -1, offset, partition_max_bytes=8 << 20)
        request = FetchRequest(isolation_level=int(committed), max_bytes=8 << 20)
        request.topics = [FetchTopic(topic=self.topic(topic), partitions=[wanted])]
        answer = self._lines[-1].send_for(request, FetchResponse, 12)
        return answer.responses[0].partitions[0]

    def logs(self) -> dict[Place, Any]:
        """Everything in the topics, for both levels of isolation."""
        found: dict[Place, Any] = {}
        for topic, count in p.PARTITIONS.items():
            for number in range(count):
                found[topic, number] = [self._log((topic, number), committed=level) for level in (False, True)]
        return found

    def _log(self, place: Place, *, committed: bool) -> Any:
        offset = self._bound(place, _EARLIEST)
        found: list[Any] = []
        while not (data := self._read(place, offset, committed=committed)).error_code:
            records = bytes(data.records or b"")
            if not records:
                bounds = data.high_watermark, data.last_stable_offset, data.log_start_offset
                return [*found, *map(shown, bounds), self.names.normalised(data.aborted_transactions)]
            found += self.names.batches(records)
            offset = next_offset(records)
        return [*found, data.error_code]


def _is_silent(step: p.Request) -> bool:
    return isinstance(step, p.Produce) and step.acks == 0
