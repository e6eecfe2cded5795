"""The straight road of a Produce: from its frame to the partitions' queues, and from the store's replies to its answer.

No task, no lock, no future. It is for requests that need nothing but what is in memory: known topics that this node
leads, batches that are taken by their headers, rights and quotas as they are cached, transactions that are open in
their partitions already. All of a request is checked before any of it is submitted, so one that needs more can still
take the other road (`handlers/produce.py`), which says everything that there is to say about errors.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from headrace.broker.dispatch import CloseConnection
from headrace.broker.handlers.produce import (
    ALL,
    IDS_SINCE,
    NO_TIME,
    ZSTD_SINCE,
    close_on_error,
    stamp_time,
    verdict,
)
from headrace.broker.produce.transactional import Transaction, verification_of
from headrace.broker.quotas.throttling import is_timed
from headrace.broker.topics.names import INTERNAL
from headrace.broker.transactions.joining import Producing
from headrace.security.acls import Operation, ResourceType
from headrace.store.partition.pending import Appended, Pending
from headrace.store.partition.sequences.verification import continues_transaction
from headrace.wire.batch import TRANSACTIONAL, BatchHeader, check_produced
from headrace.wire.batch_errors import BatchError
from headrace.wire.errors import KafkaError
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.wire.produce_answer import ProducedPart, ProducedTopic, produce_answer

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.broker.dispatch import Dispatch
    from headrace.broker.produce.refused_batches import Refusal
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.partition.base import Partition
    from headrace.store.topic_configs.policy import TopicPolicy
    from headrace.wire.codec import Pieces

_PARTS_MAX = 200
"""More take the other road, which lets others have their turn."""


def begin(call: Call, request: ProduceRequest, dispatch: Dispatch) -> bool:
    """Queues a request's batches; False, without effect, if that needs more than memory."""
    if call.connection.unsubmitted or request.acks not in (-1, 0, 1):
        return False
    produce = _Produce(call, request, dispatch)
    try:
        if not produce.check():
            return False
    except (KafkaError, BatchError):
        return False
    produce.submit()
    return True


class _Part(Pending, kw_only=True):
    """One batch of a request, which is told what became of it."""

    produce: _Produce
    partition: Partition
    append_time_ms: int = NO_TIME
    base_offset: int = -1
    error: KafkaError | None = None
    is_answered: bool = False
    behind: Refusal | None = None
    """The last refusal in its partition when it was queued."""
    told: asyncio.Future[None] | None = None

    def stamp_time(self) -> None:
        self.append_time_ms, self.header = stamp_time(self.produce.call.broker, self.batch)

    async def answered(self) -> None:
        if not self.is_answered:
            if self.told is None:
                self.told = asyncio.get_running_loop().create_future()
            await asyncio.wait([self.told])

    def resolve(self, result: Appended) -> None:
        if self.is_answered:
            return
        self.base_offset = result.base_offset
        if self.behind is not None:
            refused = self.produce.call.connection.refused_batches
            refused.is_over(self.partition.topic, self.partition.number, self.behind)
        # `_is_over` without a call: every batch comes this way.
        self.is_answered = True
        produce = self.produce
        produce.left -= 1
        if not produce.left:
            produce.finish()
        if self.told is not None and not self.told.done():
            self.told.set_result(None)

    def fail(self, error: KafkaError) -> None:
        if self.is_answered:
            return
        self.error = error
        self.produce.has_errors = True
        if self.header.producer_id >= 0:
            refused = self.produce.call.connection.refused_batches
            refused.note(self.partition.topic, self.partition.number, error)
        self._is_over()

    def _is_over(self) -> None:
        self.is_answered = True
        produce = self.produce
        produce.left -= 1
        if not produce.left:
            produce.finish()
        if self.told is not None and not self.told.done():
            self.told.set_result(None)


class _Produce:
    """One request on its way."""

    __slots__ = ("_began_ns", "_deadline", "_dispatch", "_find", "_held_ns", "_now_ms", "_parts", "_request",
                 "_transaction", "_untimed", "call", "has_errors", "left")  # fmt: skip

    def __init__(self, call: Call, request: ProduceRequest, dispatch: Dispatch) -> None:
        self.call = call
        self._request = request
        self._dispatch = dispatch
        self._parts: list[list[_Part]] = []
        """By topic, in the order of the request."""
        self._untimed: list[_Part] = []
        """Those that get their time here."""
        self.left = 0
        """Batches whose outcome is not known yet."""
        self.has_errors = False
        self._transaction: Transaction | None = None
        self._began_ns = time.perf_counter_ns() if call.broker.quotas.is_any and is_timed(call) else 0
        self._held_ns = 0
        """How long it held the event loop, where that is charged."""
        store = call.broker.store
        self._find = call.known_partition if store.nodes.leads_all_now else call.led_in_memory
        self._now_ms = store.clock.wall_ms()
        timeout_ms = min(max(request.timeout_ms, 0), call.broker.options.store_wait_ms)
        self._deadline = call.connection.now_s() + timeout_ms / 1000

    # -- whether it can go this way -----------------------------------------------------------------------------

    def check(self) -> bool:
        """Checks everything without side effects."""
        call, request = self.call, self._request
        call.check_room()
        name = request.transactional_id
        if name is not None and not call.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            return False
        by_id, seen = call.version >= IDS_SINCE, 0
        for data in request.topic_data:
            topic = call.topic_in_memory(Operation.WRITE, data.name, data.topic_id, by_id=by_id)
            if topic is None or topic.name in INTERNAL:
                return False
            seen += len(data.partition_data)
            if seen > _PARTS_MAX or not self._check_topic(topic, data):
                return False
        self.left = seen
        return seen > 0

    def _check_topic(self, topic: Topic, data: TopicProduceData) -> bool:
        policy = self.call.broker.store.policies.of(topic)
        if policy.looks_inside or (self._request.acks == ALL and policy.replicas):
            return False
        parts: list[_Part] = []
        self._parts.append(parts)
        newest_ms = policy.newest_trusted_ms(self._now_ms)
        for one in data.partition_data:
            part = self._check_part(topic, one, policy, newest_ms)
            if part is None:
                return False
            parts.append(part)
        return True

    def _check_part(
        self, topic: Topic, data: PartitionProduceData, policy: TopicPolicy, newest_ms: int
    ) -> _Part | None:
        call = self.call
        partition = self._find(topic, data.index)
        if partition is None or partition.slot.shard.memory.is_full or not isinstance(data.records, memoryview):
            return None
        header = check_produced(data.records, policy.max_message_bytes, zstd=call.version >= ZSTD_SINCE)
        if header.attributes & TRANSACTIONAL and not self._is_in_transaction(partition, header):
            return None
        is_timely = 0 < header.max_timestamp <= newest_ms and header.base_timestamp <= header.max_timestamp
        if not is_timely and policy.must_check_times(header, self._now_ms):
            return None
        batch = data.records
        part = _Part(batch, header, self._deadline, len(batch), produce=self, partition=partition)
        if policy.log_append_time:
            self._untimed.append(part)
        return part

    def _is_in_transaction(self, partition: Partition, header: BatchHeader) -> bool:
        """Whether its producer has an open transaction there, so that nothing has to be verified."""
        call, name = self.call, self._request.transactional_id
        if not name or partition.is_stale or not continues_transaction(partition, header):
            return False
        who = Producing(call.caller.organisation, name, header.producer_id, header.producer_epoch)
        if self._transaction is None:
            self._transaction = Transaction(call, who, None, {})
        return self._transaction.who == who

    # -- on its way ---------------------------------------------------------------------------------------------

    def submit(self) -> None:
        for part in self._untimed:
            part.stamp_time()
        refused = self.call.connection.refused_batches
        for parts in self._parts:
            for part in parts:
                partition = part.partition
                if refused.are_any and part.header.producer_id >= 0:
                    part.behind = refused.last(partition.topic, partition.number)
                if part.header.attributes & TRANSACTIONAL:
                    part.verification = verification_of(self._transaction, partition, part.header)
                partition.writer.enqueue(part)
        if self._began_ns:
            self._held_ns = time.perf_counter_ns() - self._began_ns

    def finish(self) -> None:
        """All batches have their outcome."""
        pieces: Pieces | None = None
        try:
            pieces = self._answer()
        except CloseConnection as reason:
            self.call.connection.close(str(reason))
        except Exception:
            self.call.connection.failed(self.call.slot)
        self._parts, self._untimed = [], []  # they know it, and it would know them until the garbage is collected
        self.call.connection.answered(self.call.slot, pieces)

    # -- the answer ---------------------------------------------------------------------------------------------

    def _answer(self) -> Pieces | None:
        quotas, dispatch, call = self.call.broker.quotas, self._dispatch, self.call
        if self.has_errors:
            response = self._with_errors()
            if self._request.acks == 0:
                close_on_error(response)
            if quotas.is_any:
                return dispatch.within_quotas(call, response, self._held_ns)
            return dispatch.packed(call, response)
        if self._request.acks == 0:
            if quotas.is_any:
                dispatch.charge(call, [], self._held_ns)
            return None
        pieces: Pieces = [self._all_well(0)]
        if quotas.is_any and (pause_ms := dispatch.charge(call, pieces, self._held_ns)):
            return [self._all_well(pause_ms)]
        return pieces

    def _all_well(self, throttle_ms: int) -> bytes:
        topics: list[ProducedTopic] = []
        for data, parts in zip(self._request.topic_data, self._parts, strict=True):  # no comprehension: it is a call
            appended: list[ProducedPart] = []
            for part in parts:
                partition = part.partition
                appended.append((partition.number, part.base_offset, part.append_time_ms, partition.log_start))
            topics.append((data.name, data.topic_id, appended))
        return produce_answer(self.call.version, self.call.slot.header.correlation_id, topics, throttle_ms)

    def _with_errors(self) -> ProduceResponse:
        response = ProduceResponse()
        for data, parts in zip(self._request.topic_data, self._parts, strict=True):
            answers = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
            response.responses.append(answers)
            for one, part in zip(data.partition_data, parts, strict=True):
                answer = PartitionProduceResponse(index=one.index, base_offset=-1, log_append_time_ms=NO_TIME)
                answers.partition_responses.append(answer)
                if part.error is not None:
                    error = verdict(self.call, part.partition, part.error)
                    answer.error_code, answer.error_message = error.code, error.message
                else:
                    answer.base_offset, answer.log_append_time_ms = part.base_offset, part.append_time_ms
                    answer.log_start_offset = part.partition.log_start
        return response
