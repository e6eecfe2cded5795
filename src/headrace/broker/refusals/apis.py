"""APIs of missing features: each gets an error that says so.

They are advertised all the same, as Apache Kafka does for disabled features. A client gets an explanation instead of a
closed connection, and tools that derive a broker's version from its APIs see a 4.x broker. Those here have a top-level
error; the others, with an error per row, are ordinary handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.wire.apis import response_class
from headrace.wire.errors import ErrorCode
from headrace.wire.schema import Payload

if TYPE_CHECKING:
    from headrace.broker.call import Call

_SHARE_GROUPS = "This broker does not support share groups yet."
_QUORUM = "This broker keeps its metadata in Redis; there is no controller quorum."

REFUSED: dict[int, tuple[ErrorCode, str]] = {
    38: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    39: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    40: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    41: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    55: (ErrorCode.UNSUPPORTED_VERSION, _QUORUM),
    64: (ErrorCode.UNSUPPORTED_VERSION, "Brokers are not registered: one that stops, or whose lease expires, is gone."),
    68: (
        ErrorCode.UNSUPPORTED_VERSION,
        "This broker does not support group.protocol=consumer yet; use group.protocol=classic.",
    ),
    76: (ErrorCode.UNSUPPORTED_VERSION, _SHARE_GROUPS),
    78: (ErrorCode.UNSUPPORTED_VERSION, _SHARE_GROUPS),
    79: (ErrorCode.UNSUPPORTED_VERSION, _SHARE_GROUPS),
    80: (ErrorCode.UNSUPPORTED_VERSION, _QUORUM),
    81: (ErrorCode.UNSUPPORTED_VERSION, _QUORUM),
    88: (
        ErrorCode.UNSUPPORTED_VERSION,
        "This broker does not support group.protocol=streams yet; use group.protocol=classic.",
    ),
    91: (ErrorCode.UNSUPPORTED_VERSION, _SHARE_GROUPS),
    92: (ErrorCode.UNSUPPORTED_VERSION, _SHARE_GROUPS),
}
"""API key -> what is answered. Tokens: what Kafka answers where nobody may have one."""


async def refuse(call: Call, request: Payload) -> Payload:
    """The answer to a request for one of these."""
    response: Any = response_class(request.api.key)()
    response.error_code, message = REFUSED[request.api.key]
    if hasattr(response, "error_message"):
        response.error_message = message
    refused: Payload = response
    return refused
