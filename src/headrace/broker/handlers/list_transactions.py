"""ListTransactions: the transactional ids of this node that match the filters."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.call import Call
from headrace.broker.transactions.coordinator import Shown
from headrace.broker.transactions.pattern import compile_pattern
from headrace.transactions.table import TxnState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = frozenset(state.value for state in TxnState) | {"PrepareEpochFence"}


async def handle(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    response = ListTransactionsResponse()
    response.unknown_state_filters = [name for name in request.state_filters if name not in _STATES]
    try:
        matches = compile_pattern(request.transactional_id_pattern)
    except KafkaError as error:
        response.error_code = error.code
        return response
    try:
        found, response.error_code = await call.transactions()
    except KafkaError:  # the store is away, or our lease is in doubt
        response.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return response
    now_ms = call.broker.store.clock.wall_ms()
    response.transaction_states = [
        TransactionState(shown.known.id, shown.known.producer_id, shown.state)
        for shown in found
        if _passes(shown, request, now_ms, matches)
    ]
    return response


def _passes(shown: Shown, request: ListTransactionsRequest, now_ms: int, matches: Callable[[str], bool]) -> bool:
    if request.state_filters and shown.state not in request.state_filters:
        return False
    if request.producer_id_filters and shown.known.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter >= 0 and not (shown.is_open and now_ms - shown.start_ms > request.duration_filter):
        return False
    return matches(shown.known.id)
