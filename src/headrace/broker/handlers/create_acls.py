"""CreateAcls: stores each rule, or rejects it with the reason, independently; an existing rule is no error."""

from __future__ import annotations

from headrace.broker.administration import in_turn, message_of
from headrace.broker.call import Call
from headrace.broker.rights.requests import read_rule
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    if not call.broker.authorizer.is_on:
        refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return CreateAclsResponse(results=[refused] * len(request.creations))
    response = CreateAclsResponse()
    async for creation in in_turn(request.creations):
        result = AclCreationResult(error_message=None)
        response.results.append(result)
        try:
            await call.add_rule(read_rule(creation))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    return response
