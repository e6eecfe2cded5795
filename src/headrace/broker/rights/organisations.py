"""Managing organisations: for administrators of `default` with a right to the cluster.

An organisation can be deleted only when its topics and groups are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.acls import Operation
from headrace.security.names import ORGANISATION, LoginName
from headrace.security.verifiers import User, Verifier
from headrace.store.security.tenants import TenantLimits
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.access import Access

RESERVED = frozenset({"nodes", "cluster", "security"})
"""Prefixes of other keys in the store."""
ORGANISATIONS_MAX = 1_000
"""Each costs every node two questions a second."""
NO_LIMIT = -1


class Tenant(NamedTuple):
    """An organisation's usage and limits."""

    limits: TenantLimits
    topics: int
    partitions: int
    users: int
    acls: int


class Organisations:
    """All of them."""

    def __init__(self, access: Access, operation: Operation) -> None:
        access.check_all_tenants(operation)
        self._access = access
        self._broker = access.broker
        self._store = access.broker.store

    @property
    def names(self) -> list[str]:
        return self._store.tenants.names

    def find(self, name: str) -> Tenant | None:
        organisation = self._store.organisations.get(name)
        if organisation is None:
            return None
        topics = organisation.catalogue.by_name.values()
        return Tenant(
            self._store.tenants.limits(name),
            len(topics),
            sum(topic.partitions for topic in topics),
            len(self._store.users.of(name)),
            len(self._broker.authorizer.rules(name)),
        )

    async def put(self, name: str, changes: Mapping[str, int], *, create: bool) -> None:
        """Makes an organisation, or changes the limits of one."""
        if not ORGANISATION.fullmatch(name) or name in RESERVED:
            raise _invalid(
                f"{name!r} is not a valid organisation name: use 1 to 63 of a-z, 0-9 and -, and none of "
                f"{', '.join(sorted(RESERVED))}"
            )
        await self._store.tenants.rows.refresh()
        is_there = name in self.names
        if create and is_there:
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"The organisation {name} exists already.")
        if not create and not is_there:
            raise _not_found(name)
        if create and len(self.names) >= ORGANISATIONS_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {ORGANISATIONS_MAX} organisations, the maximum.")
        await self._store.tenants.put(name, _changed(self._store.tenants.limits(name), changes))
        what = "created an organisation" if create else "changed an organisation"
        self._broker.authorizer.audit.changed(self._access.caller, what, named=name, limits=dict(changes))

    async def add_administrator(self, name: str, user: str, verifiers: Mapping[str, Verifier]) -> None:
        """Gives an organisation a super user, or one of its users that right and these credentials."""

        def change(present: User | None) -> User:
            return User({**(present.verifiers if present else {}), **verifiers}, is_super=True)

        await self._store.users.update(LoginName(name, user), change)
        self._broker.authorizer.audit.changed(self._access.caller, "added an administrator", named=f"{name}/{user}")

    async def delete(self, name: str) -> None:
        if name == DEFAULT_ORGANISATION:
            raise _invalid(f"The organisation {name} cannot be deleted.")
        organisation = self._store.organisations.get(name)
        if organisation is None:
            raise _not_found(name)
        await organisation.catalogue.refresh()
        if topics := len(organisation.catalogue.by_name):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{name} still has {topics} topics: delete them first.")
        if groups := len(await self._store.groups.owned.names(name)):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{name} still has {groups} groups: delete them first.")
        for user in list(self._store.users.of(name)):  # first: nobody comes in any more
            await self._store.users.update(LoginName(name, user), lambda _: None)
        for rows in (self._store.acls, self._store.quotas):
            for row, _ in list(rows.of(name)):
                await rows.drop(name, row)
        await self._store.tenants.drop(name)
        self._broker.authorizer.audit.changed(self._access.caller, "deleted an organisation", named=name)


def _changed(limits: TenantLimits, changes: Mapping[str, int]) -> TenantLimits:
    for key, value in changes.items():
        if key not in TenantLimits.__struct_fields__:
            raise _invalid(f"{key} is not a limit; there are {', '.join(TenantLimits.__struct_fields__)}.")
        if value < NO_LIMIT:
            raise _invalid(f"{key} must be 0 or more, or -1 for no limit.")
    new = {key: None if value == NO_LIMIT else value for key, value in changes.items()}
    return msgspec.structs.replace(limits, **new)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _not_found(name: str) -> KafkaError:
    return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no organisation {name}.")
