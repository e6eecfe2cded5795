"""Every broker config: under Kafka's name if there is one, else `headrace.` and the setting's name with dots.

Configs that Kafka can change at run time can be changed here too; the rest is read-only. As with topics, configs that
tools set unasked are accepted although they have no effect.
"""

from __future__ import annotations

import msgspec

from headrace.broker.configs.layers import ConfigSource, Layer
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.store.topic_configs.keys import ConfigKey, ConfigType
from headrace.store.topic_configs.table import TOPIC_CONFIGS

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST

_NO_EFFECT = " Accepted, but has no effect here."
_MINUTE_MS = 60_000

_OPTIONS: dict[str, tuple[str, ConfigType]] = {
    "auto_create_topics": ("auto.create.topics.enable", _BOOLEAN),
    "connections_idle_ms": ("connections.max.idle.ms", _LONG),
    "connections_max": ("max.connections", _INT),
    "default_partitions": ("num.partitions", _INT),
    "delete_topics_enabled": ("delete.topic.enable", _BOOLEAN),
    "fetch_max_bytes": ("fetch.max.bytes", _INT),
    "compaction_check_interval_ms": ("log.cleaner.backoff.ms", _LONG),
    "fetch_sessions_max": ("max.incremental.fetch.session.cache.slots", _INT),
    "frame_limit_bytes": ("socket.request.max.bytes", _INT),
    "log_retention_bytes": ("log.retention.bytes", _LONG),
    "log_retention_ms": ("log.retention.ms", _LONG),
    "message_max_bytes": ("message.max.bytes", _INT),
    "min_insync_replicas": ("min.insync.replicas", _INT),
    "offset_metadata_max_bytes": ("offset.metadata.max.bytes", _INT),
    "offsets_retention_check_ms": ("offsets.retention.check.interval.ms", _LONG),
    "request_budget_bytes": ("queued.max.request.bytes", _LONG),
    "retention_check_interval_ms": ("log.retention.check.interval.ms", _LONG),
    "transaction_max_timeout_ms": ("transaction.max.timeout.ms", _INT),
}
OPTION_OF = {name: option for option, (name, _) in _OPTIONS.items()}
"""By Kafka's name."""
_GROUPS: dict[str, tuple[str, ConfigType]] = {
    "initial_rebalance_delay_ms": ("group.initial.rebalance.delay.ms", _INT),
    "max_session_timeout_ms": ("group.max.session.timeout.ms", _INT),
    "max_size": ("group.max.size", _INT),
    "min_session_timeout_ms": ("group.min.session.timeout.ms", _INT),
    "offsets_retention_ms": ("headrace.offsets.retention.ms", _LONG),
}
"""Option -> the config of a Kafka broker that means the same."""

FACTS = {
    "advertised.listeners": _LIST,
    "broker.id": _INT,
    "default.replication.factor": _INT,
    "listeners": _LIST,
    "log.dirs": _LIST,
    "node.id": _INT,
    "offsets.retention.minutes": _INT,
}
"""Configs that say what a broker is, or say it in Kafka's unit."""


class BrokerConfig(ConfigKey, frozen=True, kw_only=True):
    """A row of the table."""

    meaning: str
    option: str = ""
    """The broker's option that it decides."""
    is_read_only: bool = True
    is_per_broker: bool = False
    """Whether it cannot be set for all brokers at once."""
    is_shown_unset: bool = True


def _show(value: object) -> str:
    """As configs are written."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _setting(name: str, type_: ConfigType, option: str, default: object) -> BrokerConfig:
    meaning = f"The setting {option} of headrace; docs/settings.md describes it."
    return BrokerConfig(name=name, type=type_, default=_show(default), option=option, meaning=meaning)


def _of_options() -> list[BrokerConfig]:
    rows = []
    for option, default in msgspec.structs.asdict(BrokerOptions()).items():
        own = _BOOLEAN if isinstance(default, bool) else _LONG if isinstance(default, int) else _STRING
        name, type_ = _OPTIONS.get(option, (f"headrace.{option.replace('_', '.')}", own))
        rows.append(_setting(name, type_, option, default))
    return rows


def _of_groups() -> list[BrokerConfig]:
    defaults = GroupSettings()
    return [
        _setting(name, type_, option if option.startswith("offsets") else f"group_{option}", getattr(defaults, option))
        for option, (name, type_) in _GROUPS.items()
    ]


def _of_topics() -> list[BrokerConfig]:
    """Defaults of topic configs; in Kafka each of them can be changed while brokers run."""
    return [
        BrokerConfig(
            name=row.synonym, type=row.type, default=row.default, low=row.low, high=row.high, or_equal=row.or_equal,
            choices=row.choices, option=OPTION_OF.get(row.synonym, ""), is_read_only=False,
            meaning=f"Default of the topic config {row.name}. {row.meaning}{'' if row.has_effect else _NO_EFFECT}",
        )
        for row in TOPIC_CONFIGS.values()
        if row.synonym
    ]  # fmt: skip


def _without_effect(name: str, type_: ConfigType, what: str, low: int | None = None) -> BrokerConfig:
    return BrokerConfig(
        name=name, type=type_, default="", low=low, meaning=what + _NO_EFFECT, is_read_only=False, is_shown_unset=False,
        is_per_broker=name.startswith("sasl."),
    )  # fmt: skip


_ROWS = (
    *_of_options(),
    *_of_groups(),
    *_of_topics(),
    BrokerConfig(
        name="max.connections", type=_INT, default=str(BrokerOptions().connections_max), low=1,
        option="connections_max", is_read_only=False, meaning="Maximum number of connections."),
    _without_effect("background.threads", _INT, "Threads of the broker.", 1),
    _without_effect("num.io.threads", _INT, "Threads of the broker.", 1),
    _without_effect("num.network.threads", _INT, "Threads of the broker.", 1),
    _without_effect("num.recovery.threads.per.data.dir", _INT, "Threads of the broker.", 1),
    _without_effect("num.replica.fetchers", _INT, "Replication threads; brokers do not replicate here.", 1),
    _without_effect("leader.replication.throttled.rate", _LONG, "Brokers do not replicate here.", 0),
    _without_effect("follower.replication.throttled.rate", _LONG, "Brokers do not replicate here.", 0),
    _without_effect("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, "There are no log dirs here.", 0),
    _without_effect("log.cleaner.backoff.ms", _LONG, "Of Kafka's log cleaner.", 0),
    _without_effect("log.cleaner.dedupe.buffer.size", _LONG, "Of Kafka's log cleaner."),
    _without_effect("log.cleaner.io.buffer.load.factor", _DOUBLE, "Of Kafka's log cleaner."),
    _without_effect("log.cleaner.io.buffer.size", _INT, "Of Kafka's log cleaner.", 0),
    _without_effect("log.cleaner.io.max.bytes.per.second", _DOUBLE, "Of Kafka's log cleaner."),
    _without_effect("log.cleaner.threads", _INT, "Of Kafka's log cleaner.", 0),
    _without_effect("sasl.kerberos.min.time.before.relogin", _LONG, "There is no Kerberos here."),
)  # fmt: skip

BROKER_CONFIGS: dict[str, BrokerConfig] = {row.name: row for row in _ROWS}
"""Of two rows with the same name the later one counts: the one that can be changed."""


def minutes(ms: int) -> str:
    """Kafka's unit for the retention of offsets; a part of a minute counts as one."""
    return str(-(-ms // _MINUTE_MS))


def as_started(options: BrokerOptions, groups: GroupSettings | None = None) -> Layer:
    """The settings a broker was started with that are not defaults."""
    values = {
        _OPTIONS.get(option, (f"headrace.{option.replace('_', '.')}",))[0]: value
        for option, value in msgspec.structs.asdict(options).items()
    }
    if groups is not None:
        values |= {name: getattr(groups, option) for option, (name, _) in _GROUPS.items()}
    shown = {name: _show(value) for name, value in values.items()}
    changed = {name: value for name, value in shown.items() if value != BROKER_CONFIGS[name].default}
    return Layer(ConfigSource.STATIC_BROKER_CONFIG, changed)
