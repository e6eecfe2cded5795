"""Where a config's value comes from: the first layer that has one decides.

Kafka's order: set at run time for this broker, set at run time for all brokers, set at start, default. A topic's or a
group's own value comes before all of them. DescribeConfigs shows every layer as a synonym.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.store.topic_configs.keys import ConfigType


class ConfigSource(IntEnum):
    """The source of the current value, numbered as in DescribeConfigs."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    GROUP_CONFIG = 8


class Layer(NamedTuple):
    """Values of brokers' configs, by name."""

    source: ConfigSource
    values: Mapping[str, str]


class Synonym(NamedTuple):
    """A value that would hold if those before it were not there."""

    name: str
    value: str
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """A config as DescribeConfigs shows it: the value in force first among its synonyms."""

    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    synonyms: list[Synonym]
    is_read_only: bool
    documentation: str


def synonyms_of(name: str, layers: Sequence[Layer]) -> list[Synonym]:
    """The values of the layers for a name."""
    return [Synonym(name, layer.values[name], layer.source) for layer in layers if name in layer.values]


def value_in(layers: Sequence[Layer], name: str, default: str) -> str:
    """The value in force."""
    return next((layer.values[name] for layer in layers if name in layer.values), default)


def described(
    name: str, type_: ConfigType, default: str, synonyms: list[Synonym], documentation: str, *, is_read_only: bool
) -> DescribedConfig:
    """A config with the value of its first synonym, or the default where it has none."""
    value, source = (synonyms[0].value, synonyms[0].source) if synonyms else (default, ConfigSource.DEFAULT_CONFIG)
    return DescribedConfig(name, value, type_, source, synonyms, is_read_only, documentation)
