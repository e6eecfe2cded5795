"""ExplainAccess: whether a principal may do an operation, and which rule decides."""

from __future__ import annotations

from typing import Annotated, ClassVar

from headrace.wire.schema import Api, Payload


class ExplainAccessRequest(Payload):
    api: ClassVar[Api] = Api(30000, "ExplainAccess", (0, 0), 0, response=False)

    principal: Annotated[str, "string"] = ""
    host: Annotated[str, "string"] = ""
    operation: Annotated[int, "int8"] = 0
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""


class ExplainAccessResponse(Payload):
    api: ClassVar[Api] = Api(30000, "ExplainAccess", (0, 0), 0, response=True)

    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string null"] = None
    allowed: Annotated[bool, "bool"] = False
    reason: Annotated[str, "string"] = ""
    rule: Annotated[str | None, "string null"] = None
