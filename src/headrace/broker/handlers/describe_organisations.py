"""DescribeOrganisations: the organisations with their limits and usage."""

from __future__ import annotations

import msgspec

from headrace.broker.call import Call
from headrace.broker.rights.organisations import Organisations
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.private.describe_organisations import (
    DescribedOrganisation,
    DescribeOrganisationsRequest,
    DescribeOrganisationsResponse,
    OrganisationLimit,
)


async def handle(call: Call, request: DescribeOrganisationsRequest) -> DescribeOrganisationsResponse:
    organisations = Organisations(call, Operation.DESCRIBE)
    names = organisations.names if request.names is None else list(dict.fromkeys(request.names))
    return DescribeOrganisationsResponse(organisations=[_described(organisations, name) for name in names])


def _described(organisations: Organisations, name: str) -> DescribedOrganisation:
    found = organisations.find(name)
    if found is None:
        return DescribedOrganisation(error_code=ErrorCode.RESOURCE_NOT_FOUND, name=name)
    limits = {key: value for key, value in msgspec.structs.asdict(found.limits).items() if value is not None}
    return DescribedOrganisation(
        name=name,
        topics=found.topics,
        partitions=found.partitions,
        users=found.users,
        acls=found.acls,
        limits=[OrganisationLimit(key, value) for key, value in limits.items()],
    )
