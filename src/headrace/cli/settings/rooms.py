"""Turns settings into each room's options. They have the same names, except for those listed here."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.broker.logins.options import LoginOptions
from headrace.broker.options import BrokerOptions
from headrace.cli.settings.table import SETTINGS, Settings
from headrace.groups.settings import GroupSettings
from headrace.store.options import StoreOptions

S = TypeVar("S", bound=msgspec.Struct)

RENAMED: dict[type[msgspec.Struct], dict[str, str]] = {
    StoreOptions: {"prefix": "key_prefix", "timeout_ms": "store_timeout_ms"},
    GroupSettings: {
        "initial_rebalance_delay_ms": "group_initial_rebalance_delay_ms",
        "max_session_timeout_ms": "group_max_session_timeout_ms",
        "max_size": "group_max_size",
        "min_session_timeout_ms": "group_min_session_timeout_ms",
    },
}
"""Room's options -> option -> setting."""


def setting_of(room: type[msgspec.Struct], option: str) -> str | None:
    """The setting behind a room's option; None for an internal option."""
    name = RENAMED.get(room, {}).get(option, option)
    return name if name in SETTINGS else None


def options_for(room: type[S], settings: Settings) -> S:
    """A room's options, filled from the settings."""
    names = {option: setting_of(room, option) for option in room.__struct_fields__}
    return room(**{option: getattr(settings, name) for option, name in names.items() if name is not None})


def broker_options(settings: Settings) -> BrokerOptions:
    return options_for(BrokerOptions, settings)


def login_options(settings: Settings) -> LoginOptions:
    return options_for(LoginOptions, settings)


def store_options(settings: Settings) -> StoreOptions:
    return options_for(StoreOptions, settings)


def group_settings(settings: Settings) -> GroupSettings:
    return options_for(GroupSettings, settings)
