"""Decides what callers may do by the rules of their organisation, and caches decisions until rules change.

The rules are pure (`security/rules.py`) and stored as rows that every node caches. A caller's decisions are kept by
operation and resource, so asking again costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from headrace.broker.rights.audit import Audit
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.acls import OPERATIONS_OF, Acl, Operation, ResourceType, plain_host
from headrace.security.caller import SYSTEM, Caller
from headrace.security.rules import AccessDecision, AccessQuestion, Rules
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.options import BrokerOptions
    from headrace.store.store import Store

_REMEMBERED_MAX = 10_000
"""Decisions of one caller; a client that names more resources than that has them looked up again."""
_CALLERS_MAX = 10_000
_RULES_MAX = 20_000
"""Maximum per organisation: every node keeps a copy of all."""
_STORED = b"1"
"""A row says all in its field."""

_read_rule = msgspec.json.Decoder(Acl).decode
_TYPES = len(ResourceType)
_Decisions = dict[tuple[int, str], bool]
"""By operation and type as one number, since members of an Enum are hashed by slow code, and name."""


def field_of(rule: Acl) -> str:
    """The field name of a rule: the whole rule, so that none is stored twice."""
    return msgspec.json.encode(rule).decode()


class Rights:
    """The rights of one principal at one host."""

    __slots__ = ("_authorizer", "_caller", "_decisions", "_host", "_principal", "_seen")

    def __init__(self, authorizer: Authorizer, caller: Caller) -> None:
        self._authorizer = authorizer
        self._caller = caller
        self._principal = str(caller.principal)
        self._host = plain_host(caller.host)
        self._seen = -1
        self._decisions: _Decisions = {}

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether it is allowed, without an audit line."""
        if self._seen != self._authorizer.version:
            self._seen = self._authorizer.version
            self._decisions = self._authorizer.decisions(self._caller.organisation, self._principal, self._host)
        key = (operation * _TYPES + kind, name)
        known = self._decisions.get(key)
        if known is None:
            if len(self._decisions) >= _REMEMBERED_MAX:
                self._decisions.clear()
            known = self._decisions[key] = self.decide(operation, kind, name).allowed
        return known

    def decide(self, operation: Operation, kind: ResourceType, name: str) -> AccessDecision:
        """The decision with its reason."""
        rules = self._authorizer.rules(self._caller.organisation)
        return rules.decide(AccessQuestion(self._principal, self._host, operation, kind, name))

    def asks(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether it is allowed; a refusal goes to the audit log."""
        if self.allows(operation, kind, name):
            return True
        self._authorizer.audit.refused(self._caller, operation, kind, name)
        return False

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether it may do something to any resource of a type."""
        rules = self._authorizer.rules(self._caller.organisation)
        return rules.decide_for_any(self._principal, self._host, operation, kind)

    def operations(self, kind: ResourceType, name: str) -> int:
        """The bits of `authorized operations`."""
        return sum(1 << operation for operation in OPERATIONS_OF[kind] if self.allows(operation, kind, name))


class Authorizer:
    """The rules of all organisations, as this node knows them."""

    def __init__(self, store: Store, options: BrokerOptions, *, is_on: bool) -> None:
        self.is_on = is_on
        self.audit = Audit(store.clock.monotonic_s)
        self.version = 0
        """Rises whenever a decision may be another one than before."""
        self._rows, self._users = store.acls, store.users
        self._allow_if_no_rule = options.allow_everyone_if_no_acl_found
        self._super_users = _read_super_users(options.super_users)
        self._rules: dict[str, Rules] = {}
        self._decisions: dict[tuple[str, str, str], _Decisions] = {}
        self._rows.on_change = self._changed
        self._users.on_change = self._users_changed

    def rights_of(self, caller: Caller) -> Rights | None:
        """None: it may do everything."""
        return None if not self.is_on or caller.principal == SYSTEM else Rights(self, caller)

    def rules(self, organisation: str) -> Rules:
        found = self._rules.get(organisation)
        if found is None:
            rules = [_read_rule(field) for field, _ in self._rows.of(organisation)]
            found = self._rules[organisation] = Rules(rules, allow_if_no_rule=self._allow_if_no_rule)
            self._set_super_users(organisation, found)
        return found

    def _set_super_users(self, organisation: str, rules: Rules) -> None:
        stored = {f"User:{name}" for name, user in self._users.of(organisation).items() if user.is_super}
        rules.set_super_users(stored | self._super_users.get(organisation, frozenset()))

    def decisions(self, organisation: str, principal: str, host: str) -> _Decisions:
        """Decisions shared by callers of one name and address."""
        if len(self._decisions) >= _CALLERS_MAX:
            self._decisions.clear()
        return self._decisions.setdefault((organisation, principal, host), {})

    async def add(self, caller: Caller, rule: Acl) -> None:
        """Stores a rule; storing it twice is fine."""
        if len(self.rules(caller.organisation)) >= _RULES_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {_RULES_MAX} ACLs; no more can be stored.")
        if await self._rows.put(caller.organisation, field_of(rule), _STORED):
            self.audit.changed(caller, "added an ACL", acl=str(rule))

    async def remove(self, caller: Caller, rule: Acl) -> None:
        if await self._rows.drop(caller.organisation, field_of(rule)):
            self.audit.changed(caller, "removed an ACL", acl=str(rule))

    def note(self, caller: Caller, what: str, **details: object) -> None:
        """Logs a change made by a client; not the broker's own ones."""
        if self.is_on and caller.principal != SYSTEM:
            self.audit.changed(caller, what, **details)

    def _changed(self, changed: Mapping[str, bytes | None]) -> None:
        for field, row in changed.items():
            organisation, _, name = field.partition("/")
            rules = self._rules.get(organisation)
            if rules is not None:
                rule = _read_rule(name)
                if row is None:
                    rules.remove(rule)
                else:
                    rules.add(rule)
        self._forget_decisions()

    def _users_changed(self) -> None:
        """Refreshes the super users, which are few and rarely change."""
        for organisation, rules in self._rules.items():
            self._set_super_users(organisation, rules)
        self._forget_decisions()

    def _forget_decisions(self) -> None:
        self.version += 1
        self._decisions = {}


def _read_super_users(text: str) -> dict[str, frozenset[str]]:
    """`User:alice;acme/User:bob` by organisation."""
    found: dict[str, set[str]] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        organisation, slash, principal = item.partition("/")
        if not slash:
            organisation, principal = DEFAULT_ORGANISATION, item
        found.setdefault(organisation, set()).add(principal)
    return {organisation: frozenset(names) for organisation, names in found.items()}
