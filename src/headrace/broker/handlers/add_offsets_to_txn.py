"""AddOffsetsToTxn: adds a group whose offsets are committed with the transaction."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.transactions.versions import end_error
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.owned.transactions import Parts
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def handle(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    if not request.transactional_id or not request.group_id:
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.INVALID_GROUP_ID
        return AddOffsetsToTxnResponse(error_code=code)
    producer = request.producer_id, request.producer_epoch
    error = await call.add_to_transaction(request.transactional_id, producer, Parts(groups=[request.group_id]))
    return AddOffsetsToTxnResponse(error_code=end_error(error, call.version))
