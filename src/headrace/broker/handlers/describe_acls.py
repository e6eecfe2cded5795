"""DescribeAcls: the rules that match a filter, by resource; without an authorizer, SECURITY_DISABLED."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.requests import read_filter
from headrace.security.acls import Acl, Operation
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not call.broker.authorizer.is_on:
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message)
    try:
        wanted = read_filter(request)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    rules = await call.rules(Operation.DESCRIBE)
    found = sorted(rule for rule in rules if wanted.matches(rule))
    return DescribeAclsResponse(error_message=None, resources=_by_resource(found))


def _by_resource(rules: list[Acl]) -> list[DescribeAclsResource]:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for rule in rules:
        key = (rule.resource_type, rule.name, rule.pattern)
        resource = resources.setdefault(key, DescribeAclsResource(*key, acls=[]))
        resource.acls.append(AclDescription(rule.principal, rule.host, rule.operation, rule.permission))
    return list(resources.values())
