"""InitProducerId: a new unique producer id, or that of a transactional id with a new epoch."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.transactions.versions import init_error
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is None:
        call.check_idempotent_write()
        now_ms = call.broker.store.clock.wall_ms()
        return InitProducerIdResponse(producer_id=call.broker.producer_ids.new(now_ms), producer_epoch=0)
    if error := _check(call, request):
        return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    answer = await call.init_transactions(
        request.transactional_id, request.transaction_timeout_ms, (request.producer_id, request.producer_epoch)
    )
    error = init_error(answer.error, call.version)
    return InitProducerIdResponse(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.epoch)


def _check(call: Call, request: InitProducerIdRequest) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= call.broker.options.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE
