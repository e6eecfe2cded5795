"""Quotas in requests: parsed, or refused with the messages of Kafka's controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from headrace.security.quotas import CLIENT_ID, IP, KEYS_OF_ADDRESSES, KEYS_OF_CLIENTS, USER, Entity
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_client_quotas import EntityData, OpData
from headrace.wire.messages.describe_client_quotas import ComponentData

_TYPES = (USER, CLIENT_ID, IP)
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_LARGEST = float(2**63)


def read_entity(parts: Sequence[EntityData]) -> Entity:
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    found: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type in found:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {part.entity_type}")
        if part.entity_type not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _invalid(f"Empty {part.entity_type} not supported")
        found[part.entity_type] = part.entity_name
    if IP in found and len(found) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    if found.get(IP) is not None:
        found[IP] = _address(found[IP] or "")
    return tuple(sorted(found.items()))


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise _invalid(f"{text} is not a valid IP or resolvable host.") from None


def changed_values(entity: Entity, present: Mapping[str, float], ops: Sequence[OpData]) -> dict[str, float]:
    """An entity's quotas after a change."""
    keys = KEYS_OF_ADDRESSES if entity[0][0] == IP else KEYS_OF_CLIENTS
    values = dict(present)
    seen = set()
    for op in ops:
        if op.key in seen:
            raise _invalid(f"Duplicate quota key {op.key} not updating quota for this entity {entity}")
        seen.add(op.key)
        if op.remove:
            values.pop(op.key, None)
            continue
        if op.key not in keys:
            raise _invalid(f"Invalid configuration key {op.key}")
        if not op.value > 0:
            raise _invalid(f"Quota {op.key} must be greater than 0")
        if keys[op.key] and op.value > _LARGEST:
            raise _invalid(f"Proposed value for {op.key} is too large for a LONG.")
        if keys[op.key] and abs(op.value % 1.0) > 1e-6:
            raise _invalid(f"{op.key} cannot be a fractional value.")
        values[op.key] = op.value
    return values


class QuotaFilter:
    """The filter of DescribeClientQuotas."""

    def __init__(self, components: Sequence[ComponentData], strict: bool) -> None:
        self._strict = strict
        self._exact: dict[str, str | None] = {}
        self._types: set[str] = set()
        for component in components:
            self._add(component)
        named = self._exact.keys() | self._types
        if IP in named and len(named) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def _add(self, one: ComponentData) -> None:
        if not one.entity_type:
            raise _invalid("Invalid empty entity type.")
        if one.entity_type in self._exact or one.entity_type in self._types:
            raise _invalid(f"Entity type {one.entity_type} cannot appear more than once in the filter.")
        if one.entity_type not in _TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {one.entity_type}")
        if one.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"Unknown match type {one.match_type}")
        if one.match_type == _EXACT and one.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if one.match_type != _EXACT and one.match is not None:
            name = "DEFAULT" if one.match_type == _DEFAULT else "SPECIFIED"
            raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        if one.match_type == _SPECIFIED:
            self._types.add(one.entity_type)
        else:
            self._exact[one.entity_type] = one.match

    def matches(self, entity: Entity) -> bool:
        parts = dict(entity)
        if self._strict and len(parts) != len(self._exact) + len(self._types):
            return False
        exact = all(kind in parts and parts[kind] == name for kind, name in self._exact.items())
        return exact and self._types <= parts.keys()


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
