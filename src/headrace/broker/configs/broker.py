"""The effective configs of this broker: those it was started with, overridden by those set at run time.

Stored values may come from another version of the broker: unknown or unreadable ones are kept, hidden, and treated as
not set.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.broker.configs.broker_table import BROKER_CONFIGS, FACTS, BrokerConfig, as_started
from headrace.broker.configs.layers import ConfigSource, DescribedConfig, Layer, Synonym, described, synonyms_of
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.configs import Configs, of_broker
from headrace.wire.errors import ErrorCode, KafkaError

FOR_ALL = ""
"""The name of the resource that stands for all brokers."""


class BrokerConfigs:
    """This broker's layers of configs, and the options that they come to."""

    def __init__(self, started: BrokerOptions, groups: GroupSettings, stored: Configs, node_id: int) -> None:
        self.options = started
        self.groups = groups
        self.layers: tuple[Layer, ...] = ()
        self._started = started
        self._static = as_started(started, groups)
        self._stored = stored
        self._node_id = node_id
        self.apply()

    def apply(self) -> None:
        """Applies the stored configs."""
        own = Layer(ConfigSource.DYNAMIC_BROKER_CONFIG, _readable(self._stored.get(of_broker(str(self._node_id)))))
        self.layers = (own, self._of_all(), self._static)
        changed = {
            row.option: int(layer.values[name])
            for layer in (self._of_all(), own)
            for name in layer.values
            if (row := BROKER_CONFIGS[name]).option
        }
        self.options = msgspec.structs.replace(self._started, **changed)

    @property
    def topic_defaults(self) -> dict[str, str]:
        """The defaults for topic configs: the first layer's value of each name."""
        return {name: value for layer in reversed(self.layers) for name, value in layer.values.items()}

    def describe(self, facts: Mapping[str, str]) -> list[DescribedConfig]:
        """All configs of this broker by name; `facts` are those that are not options."""
        rows = [self._described(row) for row in BROKER_CONFIGS.values() if self._is_shown(row)]
        return sorted([*(_fact(name, value) for name, value in facts.items()), *rows])

    def describe_all(self) -> list[DescribedConfig]:
        """Only the configs set for all brokers."""
        layer = self._of_all()
        return [_dynamic(BROKER_CONFIGS[name], synonyms_of(name, [layer])) for name in sorted(layer.values)]

    def _of_all(self) -> Layer:
        return Layer(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, _readable(self._stored.get(of_broker(FOR_ALL))))

    def _is_shown(self, row: BrokerConfig) -> bool:
        return row.is_shown_unset or bool(synonyms_of(row.name, self.layers))

    def _described(self, row: BrokerConfig) -> DescribedConfig:
        synonyms = synonyms_of(row.name, self.layers)
        if row.is_shown_unset:
            synonyms.append(Synonym(row.name, row.default, ConfigSource.DEFAULT_CONFIG))
        return _dynamic(row, synonyms)


def _dynamic(row: BrokerConfig, synonyms: list[Synonym]) -> DescribedConfig:
    return described(row.name, row.type, row.default, synonyms, row.meaning, is_read_only=row.is_read_only)


def _fact(name: str, value: str) -> DescribedConfig:
    synonyms = [Synonym(name, value, ConfigSource.STATIC_BROKER_CONFIG)]
    return described(name, FACTS[name], value, synonyms, "What this broker is.", is_read_only=True)


def _readable(values: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in values.items():
        row = BROKER_CONFIGS.get(name)
        if row is not None and not row.is_read_only:
            try:
                found[name] = row.check(value)
            except KafkaError:
                continue
    return found


def check_broker_changes(name: str, changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
    """The configs of a broker, or with the empty name of all brokers, after a change; None resets one."""
    fixed = [key for key, value in changes.items() if value is not None and not _is_dynamic(key)]
    if fixed:
        raise _refused(f"Cannot update these configs dynamically: [{', '.join(fixed)}]{_instead(fixed)}")
    result = dict(others)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _checked(BROKER_CONFIGS[key], value)
    if not name and (alone := [key for key in result if BROKER_CONFIGS[key].is_per_broker]):
        raise _refused(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(alone)}]"
        )
    return result


def _is_dynamic(name: str) -> bool:
    return name in BROKER_CONFIGS and not BROKER_CONFIGS[name].is_read_only


def _instead(names: list[str]) -> str:
    settings = [BROKER_CONFIGS[name].option for name in names if name in BROKER_CONFIGS]
    return f". Start the broker with another {', '.join(settings)} (flag, environment or file)." if settings else ""


def _checked(row: BrokerConfig, value: str) -> str:
    """The error code is Kafka's for brokers, where a value of a topic gets INVALID_CONFIG."""
    try:
        checked = row.check(value)
    except KafkaError as error:
        raise _refused(error.message or "") from None
    if (row.name, checked) == ("log.retention.ms", "0"):
        raise _refused(f"requirement failed: {row.name} must be unlimited (-1) or, greater than or equal to 1")
    return checked


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
