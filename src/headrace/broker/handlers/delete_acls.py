"""DeleteAcls: removes the rules that match the filters, and returns them."""

from __future__ import annotations

from headrace.broker.administration import in_turn, message_of
from headrace.broker.call import Call
from headrace.broker.rights.requests import read_filter
from headrace.security.acls import Acl, Operation
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if not call.broker.authorizer.is_on:
        refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    return DeleteAclsResponse(filter_results=[await _delete(call, wanted) async for wanted in in_turn(request.filters)])


async def _delete(call: Call, asked: DeleteAclsFilter) -> DeleteAclsFilterResult:
    result = DeleteAclsFilterResult(error_message=None)
    try:
        wanted = read_filter(asked)
        rules = await call.rules(Operation.ALTER)
        async for rule in in_turn(sorted(rule for rule in rules if wanted.matches(rule))):
            await call.remove_rule(rule)
            result.matching_acls.append(_shown(rule))
    except KafkaError as error:
        result.error_code, result.error_message = error.code, message_of(error)
    return result


def _shown(rule: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
