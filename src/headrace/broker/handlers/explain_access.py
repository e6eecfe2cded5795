"""ExplainAccess: whether a user of the caller's organisation may do something, and which rule decides."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.security.acls import Operation, ResourceType, plain_host
from headrace.security.rules import AccessQuestion
from headrace.wire.errors import ErrorCode
from headrace.wire.private.explain_access import ExplainAccessRequest, ExplainAccessResponse


async def handle(call: Call, request: ExplainAccessRequest) -> ExplainAccessResponse:
    if not call.broker.authorizer.is_on:
        message = "No Authorizer is configured: everyone may do everything."
        return ExplainAccessResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message)
    try:
        operation, kind = Operation(request.operation), ResourceType(request.resource_type)
    except ValueError:
        message = "There is no such operation or resource type."
        return ExplainAccessResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    host = plain_host(request.host)
    found = call.explain(AccessQuestion(request.principal, host, operation, kind, request.resource_name))
    return ExplainAccessResponse(
        allowed=found.allowed, reason=found.why.value, rule=None if found.rule is None else str(found.rule)
    )
