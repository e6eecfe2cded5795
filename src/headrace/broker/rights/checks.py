"""Checks of a caller's rights: `Access` asks before it hands anything out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.rights.asking import Ask, NotAuthorized, OnCluster
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.rights.authorizer import Rights
    from headrace.security.caller import Caller


class Checks:
    """The part of a caller's access that says no."""

    __slots__ = ("_rights", "caller")

    caller: Caller
    _rights: Rights | None
    """None: nobody asks for any."""

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the caller has a right, for filtering lists."""
        return self._rights is None or self._rights.allows(operation, kind, name)

    def check(self, ask: Ask, kind: ResourceType, name: str) -> None:
        """Raises Kafka's error for a missing right, and audits it."""
        if self._rights is None:
            return
        if isinstance(ask, OnCluster):
            ask, kind, name = ask.operation, ResourceType.CLUSTER, CLUSTER_NAME
        if not self._rights.asks(ask, kind, name):
            raise NotAuthorized(kind)

    def check_cluster(self, operation: Operation) -> None:
        """Raises CLUSTER_AUTHORIZATION_FAILED unless the caller has that right to its organisation's cluster."""
        self.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def check_all_tenants(self, operation: Operation) -> None:
        """The same for anything that affects all organisations: only `default` can grant it."""
        if self.caller.organisation != DEFAULT_ORGANISATION:
            raise NotAuthorized(ResourceType.CLUSTER)
        self.check_cluster(operation)

    def check_create_topic(self, name: str) -> None:
        """A right to the cluster or to the topic lets one create it."""
        self._check_either(Operation.CREATE, name)

    def check_delete_topic(self, name: str) -> None:
        """The same for deleting it."""
        self._check_either(Operation.DELETE, name)

    def check_idempotent_write(self) -> None:
        """IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
        if self._rights is None or self._rights.allows_any(Operation.WRITE, ResourceType.TOPIC):
            return
        self.check_cluster(Operation.IDEMPOTENT_WRITE)

    def _check_either(self, operation: Operation, name: str) -> None:
        if not self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            self.check(operation, ResourceType.TOPIC, name)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bits of `authorized operations`: what the caller may do to a resource (KIP-430)."""
        if self._rights is None:
            return sum(1 << operation for operation in OPERATIONS_OF[kind])
        return self._rights.operations(kind, name)
