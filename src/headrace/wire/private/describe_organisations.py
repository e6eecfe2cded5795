"""DescribeOrganisations: all organisations with their limits and usage."""

from __future__ import annotations

from typing import Annotated, ClassVar

from headrace.wire.schema import Api, Message, Payload


class DescribeOrganisationsRequest(Payload):
    api: ClassVar[Api] = Api(30001, "DescribeOrganisations", (0, 0), 0, response=False)

    names: Annotated[list[str] | None, "[]string null"] = []


class OrganisationLimit(Message):
    key: Annotated[str, "string"] = ""
    value: Annotated[int, "int64"] = 0


class DescribedOrganisation(Message):
    error_code: Annotated[int, "int16"] = 0
    name: Annotated[str, "string"] = ""
    topics: Annotated[int, "int32"] = 0
    partitions: Annotated[int, "int32"] = 0
    users: Annotated[int, "int32"] = 0
    acls: Annotated[int, "int32"] = 0
    limits: Annotated[list[OrganisationLimit], "[]OrganisationLimit"] = []


class DescribeOrganisationsResponse(Payload):
    api: ClassVar[Api] = Api(30001, "DescribeOrganisations", (0, 0), 0, response=True)

    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string null"] = None
    organisations: Annotated[list[DescribedOrganisation], "[]DescribedOrganisation"] = []
