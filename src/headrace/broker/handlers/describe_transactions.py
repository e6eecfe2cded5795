"""DescribeTransactions: the state of transactional ids, and the partitions of their open transactions."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.security.acls import Operation, ResourceType
from headrace.store.redis.errors import StoreError
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

_NOT_OPEN = -1


async def handle(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    names = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=[await _describe(call, name) for name in names])


async def _describe(call: Call, name: str) -> TransactionState:
    try:
        if not name:
            call.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
            return TransactionState(ErrorCode.INVALID_REQUEST, name)
        found = await call.transaction(name)
    except StoreError:
        return TransactionState(ErrorCode.COORDINATOR_NOT_AVAILABLE, name)
    except KafkaError as error:
        return TransactionState(error.code, name)
    if found is None:
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
    known, parts = found.known, found.parts
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=name,
        transaction_state=found.state,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time=found.start_ms if found.is_open else _NOT_OPEN,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[TopicData(topic, numbers) for topic, numbers in call.topics_of(parts).items()],
    )
