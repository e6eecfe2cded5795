"""Which rules match a filter, for DescribeAcls and DeleteAcls.

ANY and a missing name, principal or host match everything. The pattern type MATCH selects every pattern that applies to
a resource of this name.
"""

from __future__ import annotations

import msgspec

from headrace.security.acls import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType


class AclFilter(msgspec.Struct, frozen=True):
    """The filter of a search for ACLs."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, rule: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self._matches_pattern(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )

    def _matches_pattern(self, rule: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, rule.pattern):
            return False
        if self.name is None or self.name == rule.name:
            return True
        if self.pattern is not PatternType.MATCH:
            return False
        if rule.pattern is PatternType.PREFIXED:
            return self.name.startswith(rule.name)
        return rule.name == WILDCARD
