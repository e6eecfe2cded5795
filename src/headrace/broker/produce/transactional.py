"""Batches of a transaction: verified once per request, before any of them is appended.

The result holds while the batch waits in its partition's queue, unless a marker of its producer arrives in between:
then the queue verifies again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from headrace.broker.call import Call
from headrace.broker.produce.left_over import abort_left_over, has_left_over
from headrace.broker.transactions.joining import Producing
from headrace.security.acls import Operation
from headrace.store.cluster.catalogue import Topic
from headrace.store.partition.base import Partition
from headrace.store.partition.sequences.verification import Moment, Verification, continues_transaction, moment_of
from headrace.wire.batch import BatchHeader, may_be_transactional, read_header
from headrace.wire.batch_errors import BatchError
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.produce import ProduceRequest

_IDS_SINCE = 13


class Transaction(NamedTuple):
    """The transaction of a request's batches."""

    call: Call
    who: Producing | None
    refusal: KafkaError | None
    """Why none of its transactional batches may be appended."""
    asked: dict[Partition, Moment]
    """Where it was asked whether they may, and when."""

    async def ask(self, partition: Partition) -> None:
        """Asks again, for a batch that is at the head of its queue."""
        assert self.who is not None
        await self.call.broker.joining.check(self.who, [partition], version=self.call.version, patiently=False)
        if await has_left_over(partition, self.who.producer_id, self.who.epoch):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "An earlier transaction is open: it is aborted first.")


async def begin(call: Call, request: ProduceRequest) -> Transaction | None:
    """Looks at a request's batches by their headers; None if none of them is part of a transaction."""
    headers = list(_transactional(request))
    if not headers:
        return None
    if request.transactional_id is None:
        return _refused(call, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "The request names no transactional id.")
    producers = {(header.producer_id, header.producer_epoch) for _, _, _, header in headers}
    if len(producers) > 1 or not request.transactional_id:
        return _refused(call, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The batches have several producer ids or epochs.")
    ((producer_id, epoch),) = producers
    who = Producing(call.caller.organisation, request.transactional_id, producer_id, epoch)
    asked: dict[Partition, Moment] = {}
    for name, topic_id, number, header in headers:
        partition = await _partition(call, name, topic_id, number)
        if partition is not None and not continues_transaction(partition, header):
            asked[partition] = moment_of(partition, producer_id)
    try:
        if asked:
            check = partial(call.broker.joining.check, who, list(asked), version=call.version)
            number = await check(patiently=True)
            for partition in asked:
                await abort_left_over(partition, (producer_id, epoch), number - 1, partial(check, patiently=False))
    except KafkaError as error:
        return Transaction(call, who, error, asked)
    return Transaction(call, who, None, asked)


def verification_of(transaction: Transaction | None, partition: Partition, header: BatchHeader) -> Verification | None:
    """A condition that must hold while the batch is queued; raises if it does not hold now."""
    if not header.is_transactional:
        return None
    if partition.topic.is_stream:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "Topics in the format stream do not support transactions."
        )
    assert transaction is not None
    moment = transaction.asked.get(partition)
    if transaction.refusal is not None and (moment is not None or transaction.who is None):
        raise transaction.refusal
    verification = Verification(lambda: transaction.ask(partition))
    if moment is not None:
        verification.answered(moment)
        partition.producers.verify(header, moment)
    return verification


def _transactional(request: ProduceRequest) -> Iterator[tuple[str, bytes, int, BatchHeader]]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if not isinstance(data.records, memoryview) or not may_be_transactional(data.records):
                continue
            try:
                header = read_header(data.records)
            except BatchError:
                continue  # it is refused when its turn comes
            if not header.is_control:
                yield topic.name, topic.topic_id, data.index, header


async def _partition(call: Call, name: str, topic_id: bytes, number: int) -> Partition | None:
    try:
        topic: Topic = await call.topic(Operation.WRITE, name, topic_id, by_id=call.version >= _IDS_SINCE)
        partition = await call.led_partition(topic, number)
        if topic.is_stream:
            return None
        if partition.is_stale:
            await partition.confirm()
    except KafkaError:
        return None  # it is told so when its turn comes
    return partition


def _refused(call: Call, code: ErrorCode, message: str) -> Transaction:
    return Transaction(call, None, KafkaError(code, message), {})
