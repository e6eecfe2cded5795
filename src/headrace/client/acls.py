"""ACLs of the caller's organisation, and explanations of decisions."""

from __future__ import annotations

from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.connection import check
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from headrace.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.wire.private.explain_access import ExplainAccessRequest, ExplainAccessResponse

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


class AclRow(NamedTuple):
    """One rule, in Kafka's numbers."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class AclQuery(NamedTuple):
    """A filter for rules; ANY and None match all."""

    resource_type: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY


class AclAdmin:
    """Requests about ACLs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def add(self, rules: list[AclRow]) -> None:
        request = CreateAclsRequest([AclCreation(*rule) for rule in rules])
        for result in self._cluster.any_node().send_for(request, CreateAclsResponse).results:
            check(result.error_code, result.error_message)

    def find(self, query: AclQuery) -> list[AclRow]:
        answer = self._cluster.any_node().send_for(DescribeAclsRequest(*query), DescribeAclsResponse)
        check(answer.error_code, answer.error_message)
        return [
            AclRow(
                one.resource_type,
                one.resource_name,
                one.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for one in answer.resources
            for acl in one.acls
        ]

    def remove(self, query: AclQuery) -> list[AclRow]:
        request = DeleteAclsRequest([DeleteAclsFilter(*query)])
        [result] = self._cluster.any_node().send_for(request, DeleteAclsResponse).filter_results
        check(result.error_code, result.error_message)
        return [
            AclRow(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for acl in result.matching_acls
        ]

    def explain(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> ExplainAccessResponse:
        request = ExplainAccessRequest(principal, host, operation, resource_type, name)
        answer = self._cluster.any_node().send_for(request, ExplainAccessResponse, 0)
        check(answer.error_code, answer.error_message)
        return answer
