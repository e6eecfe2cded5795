"""Group configs: those of Kafka 4 for the consumer, share and streams protocols. None affects classic groups.

They are checked with Kafka's messages and default bounds, stored and shown. They have no effect until those protocols
are supported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.broker.configs.layers import ConfigSource, DescribedConfig, Synonym, described
from headrace.store.topic_configs.keys import ConfigKey, ConfigType, invalid_config
from headrace.wire.errors import KafkaError

_DURATION = re.compile(r"P(?=.)(\+?\d+D)?(T(?=.)(\+?\d+H)?(\+?\d+M)?(\+?\d+([.,]\d{0,9})?S)?)?", re.IGNORECASE)
_RESET = "share.auto.offset.reset"
_NO_EFFECT_YET = " Has no effect until that protocol is supported."


class GroupConfig(ConfigKey, frozen=True, kw_only=True):
    """A row of the table."""

    meaning: str
    least: int | None = None
    most: int | None = None
    """Bounds that a broker sets; Kafka names its config where one is passed."""
    has_synonym: bool = True
    """Whether Kafka has a broker's config of the same name for the default."""

    @property
    def synonym(self) -> str:
        return f"group.{self.name}" if self.has_synonym else self.name

    def check(self, value: str) -> str:
        checked = super().check(value)
        if self.name == _RESET:
            _check_reset(checked)
        for bound, side, words in ((self.least, "min", "greater"), (self.most, "max", "less")):
            if bound is not None and (int(checked) < bound if side == "min" else int(checked) > bound):
                kind, _, rest = self.name.partition(".")
                raise invalid_config(
                    f"{self.name} must be {words} than or equal to group.{kind}.{side}.{rest.removeprefix('num.')}"
                )
        return checked


def _check_reset(value: str) -> None:
    strategy, _, duration = value.partition(":")
    if value in ("earliest", "latest") or (strategy == "by_duration" and _DURATION.fullmatch(duration)):
        return
    raise invalid_config(
        f"Invalid value {value} for configuration {_RESET}: Invalid value `{value}` for configuration {_RESET}. The "
        "value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _times(kind: str) -> list[GroupConfig]:
    """Configs that the three protocols share."""
    return [
        GroupConfig(
            name=f"{kind}.session.timeout.ms", type=ConfigType.INT, default="45000", low=1, least=45_000, most=60_000,
            meaning="A member without a heartbeat for this long is removed."),
        GroupConfig(
            name=f"{kind}.heartbeat.interval.ms", type=ConfigType.INT, default="5000", low=1, least=5_000, most=15_000,
            meaning="Heartbeat interval of the members."),
        GroupConfig(
            name=f"{kind}.assignment.interval.ms", type=ConfigType.INT, default="1000", low=0, most=15_000,
            meaning="Shortest time between two assignments."),
    ]  # fmt: skip


_ROWS = (
    *_times("consumer"),
    *_times("share"),
    GroupConfig(
        name=_RESET, type=ConfigType.STRING, default="latest", has_synonym=False,
        meaning="Where a share group starts: earliest, latest or by_duration:<ISO 8601>."),
    GroupConfig(
        name="share.isolation.level", type=ConfigType.STRING, default="read_uncommitted", has_synonym=False,
        choices=("read_committed", "read_uncommitted"),
        meaning="Whether records of open and aborted transactions are delivered."),
    GroupConfig(
        name="share.record.lock.duration.ms", type=ConfigType.INT, default="30000", low=1_000, least=15_000,
        most=60_000, meaning="How long a delivered record stays locked for its consumer."),
    GroupConfig(
        name="share.delivery.count.limit", type=ConfigType.INT, default="5", low=2, most=10,
        meaning="Maximum deliveries of a record."),
    GroupConfig(
        name="share.partition.max.record.locks", type=ConfigType.INT, default="2000", low=100, most=4_000,
        meaning="Maximum records in flight per partition."),
    GroupConfig(
        name="share.renew.acknowledge.enable", type=ConfigType.BOOLEAN, default="true", has_synonym=False,
        meaning="Whether a member may extend its lock on a record."),
    *_times("streams"),
    GroupConfig(
        name="streams.initial.rebalance.delay.ms", type=ConfigType.INT, default="3000", low=0,
        meaning="How long a new group waits for more members."),
    GroupConfig(
        name="streams.num.standby.replicas", type=ConfigType.INT, default="0", low=0, most=2,
        meaning="Standby replicas of each task."),
)  # fmt: skip

GROUP_CONFIGS: dict[str, GroupConfig] = {row.name: row for row in _ROWS}


def check_group_changes(changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
    """A group's configs after a change; None takes one back to its default."""
    result = dict(others)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        elif name not in GROUP_CONFIGS:
            raise invalid_config(f"Unknown group config name: {name}")
        else:
            result[name] = GROUP_CONFIGS[name].check(value)
    return result


def describe_group(configs: Mapping[str, str]) -> list[DescribedConfig]:
    """All configs of a group in the order of their names."""
    return [_describe(GROUP_CONFIGS[name], configs) for name in sorted(GROUP_CONFIGS)]


def _describe(row: GroupConfig, configs: Mapping[str, str]) -> DescribedConfig:
    synonyms = [Synonym(row.synonym, row.default, ConfigSource.DEFAULT_CONFIG)]
    if (value := _readable(row, configs)) is not None:
        synonyms.insert(0, Synonym(row.name, value, ConfigSource.GROUP_CONFIG))
    return described(row.name, row.type, row.default, synonyms, row.meaning + _NO_EFFECT_YET, is_read_only=False)


def _readable(row: GroupConfig, configs: Mapping[str, str]) -> str | None:
    """A stored value if this version would accept it."""
    try:
        return row.check(configs[row.name]) if row.name in configs else None
    except KafkaError:
        return None
