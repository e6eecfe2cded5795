"""DeleteOrganisation: deletes an organisation without topics and groups, with its users, ACLs and quotas."""

from __future__ import annotations

from typing import Annotated, ClassVar

from headrace.wire.schema import Api, Payload


class DeleteOrganisationRequest(Payload):
    api: ClassVar[Api] = Api(30003, "DeleteOrganisation", (0, 0), 0, response=False)

    name: Annotated[str, "string"] = ""


class DeleteOrganisationResponse(Payload):
    api: ClassVar[Api] = Api(30003, "DeleteOrganisation", (0, 0), 0, response=True)

    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string null"] = None
