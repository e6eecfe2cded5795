"""Decides by the rules of Kafka's StandardAuthorizer, and says why.

A matching DENY beats every ALLOW; if nothing matches, access is denied, unless it is allowed for resources without any
rule. Super users are always allowed. Rules are indexed by pattern and principal, so a decision costs one lookup per
prefix length, however many rules there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import NamedTuple, TypeVar

from headrace.security.acls import (
    ANYBODY,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    covers,
    plain_host,
)

_NO_NAME = "hardcode"
"""Kafka's name of a topic that no rule is meant for."""


class Why(Enum):
    """The reason for a decision."""

    SUPER_USER = "a super user may do everything"
    ALLOWED = "a rule allows it"
    DENIED = "a rule denies it"
    NO_RULE_FITS = "no rule allows it"
    NOBODY_CARES = "no rule applies to this resource, and the broker then allows everyone"


class AccessDecision(NamedTuple):
    """A decision: yes or no, and why."""

    allowed: bool
    why: Why
    rule: Acl | None = None


class AccessQuestion(NamedTuple):
    """A principal, an operation and a resource."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


Pattern = tuple[ResourceType, PatternType, str]


class Rules:
    """The rules of one organisation."""

    def __init__(self, rules: Iterable[Acl] = (), *, allow_if_no_rule: bool = False) -> None:
        self.version = 0
        """Rises with each change."""
        self.allow_if_no_rule = allow_if_no_rule
        self.super_users: frozenset[str] = frozenset()
        self._all: dict[Acl, None] = {}
        self._by_principal: dict[tuple[Pattern, str], dict[Acl, str]] = {}
        """Pattern and principal -> rules, each with its host as it is compared."""
        self._count: Counter[Pattern] = Counter()
        self._lengths: dict[ResourceType, Counter[int]] = {}
        for rule in rules:
            self.add(rule)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def __contains__(self, rule: Acl) -> bool:
        return rule in self._all

    def add(self, rule: Acl) -> None:
        if rule in self._all:
            return
        pattern = (rule.resource_type, rule.pattern, rule.name)
        self._all[rule] = None
        self._by_principal.setdefault((pattern, rule.principal), {})[rule] = plain_host(rule.host)
        self._count[pattern] += 1
        if rule.pattern is PatternType.PREFIXED:
            self._lengths.setdefault(rule.resource_type, Counter())[len(rule.name)] += 1
        self.version += 1

    def remove(self, rule: Acl) -> None:
        if rule not in self._all:
            return
        pattern = (rule.resource_type, rule.pattern, rule.name)
        del self._all[rule]
        found = self._by_principal[pattern, rule.principal]
        del found[rule]
        if not found:
            del self._by_principal[pattern, rule.principal]
        _count_down(self._count, pattern)
        if rule.pattern is PatternType.PREFIXED:
            _count_down(self._lengths[rule.resource_type], len(rule.name))
        self.version += 1

    def set_super_users(self, principals: Collection[str]) -> None:
        self.super_users = frozenset(principals)
        self.version += 1

    def decide(self, question: AccessQuestion) -> AccessDecision:
        """The decision on one operation on one resource."""
        if question.principal in self.super_users:
            return AccessDecision(True, Why.SUPER_USER)
        allowing: Acl | None = None
        is_spoken_of = False
        for pattern in self._patterns(question.resource_type, question.name):
            if pattern not in self._count:
                continue
            is_spoken_of = True
            for rule in self._fitting(pattern, question):
                if rule.permission is Permission.DENY:
                    return AccessDecision(False, Why.DENIED, rule)
                allowing = allowing or rule
        if allowing is not None:
            return AccessDecision(True, Why.ALLOWED, allowing)
        if not is_spoken_of and self.allow_if_no_rule:
            return AccessDecision(True, Why.NOBODY_CARES)
        return AccessDecision(False, Why.NO_RULE_FITS)

    def _patterns(self, kind: ResourceType, name: str) -> Iterator[Pattern]:
        """The patterns that match a resource, most specific first."""
        yield kind, PatternType.LITERAL, name
        for length in sorted(self._lengths.get(kind, ()), reverse=True):
            if length <= len(name):
                yield kind, PatternType.PREFIXED, name[:length]
        if name != WILDCARD:
            yield kind, PatternType.LITERAL, WILDCARD

    def _fitting(self, pattern: Pattern, question: AccessQuestion) -> Iterator[Acl]:
        principals = (question.principal,) if question.principal == ANYBODY else (question.principal, ANYBODY)
        for principal in principals:
            for rule, host in self._by_principal.get((pattern, principal), {}).items():
                if host in (WILDCARD, question.host) and covers(rule, question.operation):
                    yield rule

    def decide_for_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is any resource of a type that an operation is allowed on (KIP-679).

        A pattern that allows counts unless a pattern that denies contains all of it. Implications do not count here,
        as in Kafka.
        """
        if self.decide(AccessQuestion(principal, host, operation, kind, _NO_NAME)).allowed:
            return True
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        for rule in self._of(principal, host, operation, kind):
            if rule.permission is Permission.ALLOW:
                allowed.append(rule)
            elif rule.pattern is PatternType.LITERAL and rule.name == WILDCARD:
                return False
            else:
                denied.add((rule.pattern, rule.name))
        return any(not _is_dominated(rule, denied) for rule in allowed)

    def _of(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> Iterator[Acl]:
        for rule in self._all:
            if (
                rule.resource_type is kind
                and rule.principal in (principal, ANYBODY)
                and plain_host(rule.host) in (WILDCARD, host)
                and rule.operation in (operation, Operation.ALL)
            ):
                yield rule


def _is_dominated(rule: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    if rule.pattern is PatternType.LITERAL and rule.name == WILDCARD:
        return False
    if rule.pattern is PatternType.LITERAL and (PatternType.LITERAL, rule.name) in denied:
        return True
    return any((PatternType.PREFIXED, rule.name[:length]) in denied for length in range(1, len(rule.name) + 1))


K = TypeVar("K")


def _count_down(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
