"""EndTxn: commits or aborts the open transaction. From version 5 the response has the producer id and epoch for the
next one.
"""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.transactions.versions import end_error
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_EPOCHS_SINCE = 5


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = await call.end_transaction(
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        commit=request.committed,
        version=2 if call.version >= _EPOCHS_SINCE else 1,
    )
    error = end_error(answer.error, call.version)
    return EndTxnResponse(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.epoch)
