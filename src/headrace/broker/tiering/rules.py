"""Which topics may be tiered, checked when configs are set; refused with Kafka's messages where it has some.

A topic can become tiered only while the lake is reachable: otherwise it would fill Redis for no visible reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.store.topic_configs.keys import invalid_config
from headrace.store.topic_configs.policy import AS_THE_WHOLE, policy_of
from headrace.store.topic_configs.table import TIERED, TOPIC_CONFIGS
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_DISABLED = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
_KEEPS_REMOTE_DATA = (
    "It is invalid to disable remote storage without deleting remote data. If you want to disable remote storage, set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`: records that are in the lake alone then leave "
    "the topic. The table itself stays."
)


async def check_tiering(broker: Broker, before: Mapping[str, str], configs: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG for impossible tiering configs."""
    defaults = broker.configs.topic_defaults
    was, wanted = policy_of(before, defaults), policy_of(configs, defaults)
    if was.is_tiered and not wanted.is_tiered and configs.get("remote.log.delete.on.disable") != "true":
        raise invalid_config(_KEEPS_REMOTE_DATA)
    if configs.get(TIERED) != "true":
        return
    if wanted.compacts:
        raise invalid_config("Remote log storage is unsupported for the compacted topics")
    if wanted.is_stream:
        raise invalid_config(
            f"{TIERED} is not supported in the format `stream`, whose entries Redis code may change at any time."
        )
    _check_local_retention("ms", wanted.retention_ms, _own(configs, "local.retention.ms"))
    _check_local_retention("bytes", wanted.retention_bytes, _own(configs, "local.retention.bytes"))
    if not was.is_tiered:
        await _check_lake(broker)


def _own(configs: Mapping[str, str], name: str) -> int | None:
    value = int(configs.get(name, TOPIC_CONFIGS[name].default))
    return None if value == AS_THE_WHOLE else value


def _check_local_retention(unit: str, of_the_whole: int, local: int | None) -> None:
    if of_the_whole < 0 or local is None:
        return
    if local == -1:
        why = f"Value must not be -1 as retention.{unit} value is set as {of_the_whole}."
    elif local > of_the_whole:
        why = f"Value must not be more than retention.{unit} property value: {of_the_whole}"
    else:
        return
    raise invalid_config(f"Invalid value {local} for configuration local.retention.{unit}: {why}")


async def _check_lake(broker: Broker) -> None:
    try:
        await broker.store.cold.check()
    except KafkaError as error:
        raise invalid_config(f"{_DISABLED} ({error.message})") from error
