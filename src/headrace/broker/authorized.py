"""`authorized operations`: a caller's rights, as requested in Metadata and the Describe calls (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.security.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.access import Access

NOT_ASKED = -(1 << 31)


def cluster_operations(access: Access) -> int:
    """The authorized operations on the cluster; none without DESCRIBE."""
    if not access.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return access.operations(ResourceType.CLUSTER)
