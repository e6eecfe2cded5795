"""Organisations, for an administrator of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.client.cluster import Cluster
from headrace.client.connection import check
from headrace.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from headrace.wire.private.alter_organisation import AlterOrganisationRequest, AlterOrganisationResponse
from headrace.wire.private.delete_organisation import DeleteOrganisationRequest, DeleteOrganisationResponse
from headrace.wire.private.describe_organisations import (
    DescribedOrganisation,
    DescribeOrganisationsRequest,
    DescribeOrganisationsResponse,
    OrganisationLimit,
)


class OrganisationAdmin:
    """Requests about organisations."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(self, names: list[str] | None = None) -> list[DescribedOrganisation]:
        request = DescribeOrganisationsRequest(names)
        answer = self._cluster.any_node().send_for(request, DescribeOrganisationsResponse, 0)
        check(answer.error_code, answer.error_message)
        for row in answer.organisations:
            check(row.error_code, f"There is no organisation {row.name}.")
        return answer.organisations

    def put(
        self,
        name: str,
        limits: Mapping[str, int],
        *,
        create: bool,
        administrators: Sequence[ScramCredentialUpsertion] = (),
    ) -> None:
        rows = [OrganisationLimit(key, value) for key, value in limits.items()]
        request = AlterOrganisationRequest(name, create, rows, list(administrators))
        answer = self._cluster.any_node().send_for(request, AlterOrganisationResponse, 0)
        check(answer.error_code, answer.error_message)

    def delete(self, name: str) -> None:
        answer = self._cluster.any_node().send_for(DeleteOrganisationRequest(name), DeleteOrganisationResponse, 0)
        check(answer.error_code, answer.error_message)
