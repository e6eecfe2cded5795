"""Topic configs as clients see them: checked when set, shown with the source of each value.

The policy that results from them is the store's (`store/topic_configs/policy.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.broker.configs.layers import (
    ConfigSource,
    DescribedConfig,
    Layer,
    Synonym,
    described,
    synonyms_of,
    value_in,
)
from headrace.store.cluster.catalogue import Topic
from headrace.store.topic_configs.keys import ConfigType, invalid_config
from headrace.store.topic_configs.policy import follows_broker, own_default, policy_of, stored_value
from headrace.store.topic_configs.table import FIXED, TOPIC_CONFIGS, TOPIC_ID, TopicConfig


def check_new_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs of a new topic as they are stored; INVALID_CONFIG if one is not right."""
    checked = {name: check_config(name, value) for name, value in configs.items()}
    check_together(checked)
    return checked


def check_config(name: str, value: str) -> str:
    """One value as it is stored; INVALID_CONFIG if the name or the value is not right."""
    row = TOPIC_CONFIGS.get(name)
    if row is None:
        raise invalid_config(f"Unknown topic config name: {name}")
    if row.is_read_only:
        raise invalid_config(f"{name} is read-only.")
    return row.check(value)


def check_together(configs: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG where two configs contradict each other."""
    policy = policy_of(configs).compaction
    shortest, longest = policy.min_lag_ms, policy.max_lag_ms
    if shortest > longest:
        raise invalid_config(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )


def check_changed_configs(topic: Topic, changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
    """A topic's configs after a change; None resets one to its default, `others` stay as they are."""
    result = dict(others)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        elif name == TOPIC_ID and value == topic.ulid:
            continue  # what DescribeConfigs showed, sent back
        else:
            result[name] = check_config(name, value)
    for name in FIXED:
        default = TOPIC_CONFIGS[name].default
        if result.get(name, default) != topic.configs.get(name, default):
            raise invalid_config(f"{name} cannot be changed after the topic's creation; create a new topic.")
    check_together(result)
    return result


def is_list(name: str) -> bool:
    """Whether a config holds several values, to which one can be added."""
    return name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].type is ConfigType.LIST


def describe_configs(
    configs: Mapping[str, str], layers: Sequence[Layer], topic_id: str = "", only: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """All or the requested configs of a topic, by name."""
    names = sorted(TOPIC_CONFIGS.keys() if only is None else TOPIC_CONFIGS.keys() & set(only))
    return [_describe(TOPIC_CONFIGS[name], configs, layers, topic_id) for name in names]


def _describe(row: TopicConfig, configs: Mapping[str, str], layers: Sequence[Layer], topic_id: str) -> DescribedConfig:
    default = topic_id if row.name == TOPIC_ID else own_default(row, configs)
    behind = layers if follows_broker(row, configs) else ()
    synonyms = []
    if row.name in configs and row.name != TOPIC_ID:
        value = stored_value(configs, row.name, value_in(behind, row.synonym, default))
        synonyms.append(Synonym(row.name, value, ConfigSource.TOPIC_CONFIG))
    if row.synonym:
        synonyms += synonyms_of(row.synonym, behind)
        synonyms.append(Synonym(row.synonym, default, ConfigSource.DEFAULT_CONFIG))
    effect = "" if row.has_effect else " Accepted, but has no effect here."
    return described(row.name, row.type, default, synonyms, row.meaning + effect, is_read_only=row.is_read_only)
