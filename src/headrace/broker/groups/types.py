"""Responses about groups of types other than `classic`, which do not exist here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.rights.asking import NotAuthorized
from headrace.security.acls import Operation, ResourceType
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.access import Access


def not_found(access: Access, group_id: str) -> tuple[ErrorCode, str | None]:
    """The error and the sentence with which Kafka describes a group that does not exist, or not with this type."""
    try:
        access.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
    except NotAuthorized as error:
        return error.code, error.message
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID, None
    return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
