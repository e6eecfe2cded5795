"""Command flags, generated from the table of settings. Separate, so that reading settings does not import click."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import structs

from headrace.cli.settings.layers import CONFIG_VARIABLE, SettingsError, load
from headrace.cli.settings.setting import Setting, ValueKind
from headrace.cli.settings.table import SETTINGS

Result = TypeVar("Result")


def setting_options(
    *names: str, hidden: bool = False, others_too: bool = False, **defaults: object
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Adds `--config` and the flags of these settings (all, if none is named), optionally `hidden` from the help.

    `defaults` are shown for flags of which the command has its own. With `others_too` the command accepts all other
    flags, too, without showing them in its help. It is called with `loaded`, the settings in force; a bad setting is a
    usage error.
    """
    chosen = [SETTINGS[name] for name in names] if names else list(SETTINGS.values())
    chosen = [structs.replace(setting, default=defaults.get(setting.name, setting.default)) for setting in chosen]
    others = [setting for setting in SETTINGS.values() if others_too and setting not in chosen]

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(command)
        def with_settings(*args: Any, config: Path | None, **given: Any) -> Result:
            flags = {setting.name: given.pop(setting.name) for setting in (*chosen, *others)}
            flags = {name: None if value == () else value for name, value in flags.items()}
            try:
                loaded = load(config, os.environ, flags)
            except SettingsError as e:
                raise click.UsageError(str(e)) from None
            return command(*args, loaded=loaded, **given)

        decorated: Callable[..., Result] = with_settings
        for setting in reversed(chosen):
            decorated = _option(setting, hidden)(decorated)
        for setting in others:
            decorated = _option(setting, True)(decorated)
        return click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            help=f"TOML file with settings.  [{CONFIG_VARIABLE}]",
        )(decorated)

    return decorate


def _option(setting: Setting, hidden: bool) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    default = setting.show(setting.default)
    note = f"{setting.variable}; default {default}" if default else setting.variable
    text = f"{setting.description}  [{note}]"
    if setting.kind is ValueKind.SWITCH:
        flags = f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(flags, setting.name, default=None, help=text, hidden=hidden)
    if setting.kind is ValueKind.LISTENERS:
        return click.option(
            setting.flag, setting.name, multiple=True, metavar=setting.kind.value, help=text, hidden=hidden
        )
    metavar = "|".join(setting.choices) if setting.choices else setting.kind.value
    return click.option(setting.flag, setting.name, default=None, metavar=metavar, help=text, hidden=hidden)
