"""InitProducerId: a producer id that was never given out before. Transactions are refused for good, not for now."""

from __future__ import annotations

from headrace.broker.dispatch import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(producer_id=call.broker.producer_ids.new(), producer_epoch=0)
