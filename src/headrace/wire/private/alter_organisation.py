"""AlterOrganisation: creates an organisation, changes its limits, or adds an administrator."""

from __future__ import annotations

from typing import Annotated, ClassVar

from headrace.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from headrace.wire.private.describe_organisations import OrganisationLimit
from headrace.wire.schema import Api, Payload


class AlterOrganisationRequest(Payload):
    api: ClassVar[Api] = Api(30002, "AlterOrganisation", (0, 0), 0, response=False)

    name: Annotated[str, "string"] = ""
    create: Annotated[bool, "bool"] = False
    limits: Annotated[list[OrganisationLimit], "[]OrganisationLimit"] = []
    administrators: Annotated[list[ScramCredentialUpsertion], "[]ScramCredentialUpsertion"] = []
    """Super users to create, with their credentials."""


class AlterOrganisationResponse(Payload):
    api: ClassVar[Api] = Api(30002, "AlterOrganisation", (0, 0), 0, response=True)

    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string null"] = None
