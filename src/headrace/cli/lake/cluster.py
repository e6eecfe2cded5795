"""How lake commands connect to a broker: like all other commands, or with Kafka's own settings for TLS and SASL.

The settings have the names that Spark users know as `kafka.*`, and are passed on to Spark's tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.cluster_option import (
    bootstrap_option,
    client_config_option,
    read_client_config,
    speaking_to,
    timeout_option,
)
from headrace.client.errors import PropertyError

if TYPE_CHECKING:
    from headrace.lake.connecting import Connecting

Result = TypeVar("Result")


def connecting_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds the connection options and `--kafka`; the command is called with `connecting` and `cluster`."""

    @bootstrap_option
    @client_config_option
    @timeout_option
    @click.option(
        "--kafka",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="A Kafka client setting, such as security.protocol. May be repeated.",
    )
    @functools.wraps(command)
    def with_connecting(
        *args: Any,
        bootstrap: str,
        client_config: Path | None,
        timeout_s: float,
        settings: tuple[str, ...],
        **given: Any,
    ) -> Result:
        connecting = _connecting(bootstrap, timeout_s, read_client_config(client_config), settings)
        try:
            cluster = connecting.cluster()
        except PropertyError as error:
            raise click.UsageError(f"--kafka: {error}") from None
        with speaking_to(cluster, bootstrap):
            return command(*args, connecting=connecting, cluster=cluster, **given)

    return with_connecting


def kafka_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """The same for a command that needs only `cluster`."""

    @connecting_options
    @functools.wraps(command)
    def with_cluster(*args: Any, connecting: Connecting, **given: Any) -> Result:
        return command(*args, **given)

    return with_cluster


def _connecting(bootstrap: str, timeout_s: float, properties: dict[str, str], settings: tuple[str, ...]) -> Connecting:
    from headrace.lake.connecting import OptionError, parse_connecting

    options = {"client.id": "headrace-cli", "request.timeout.ms": str(int(timeout_s * 1000)), **properties}
    for given in settings:
        name, equals, value = given.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--kafka {given!r} is not KEY=VALUE")
        options[name.removeprefix("kafka.")] = value
    try:
        return parse_connecting(options | {"bootstrap.servers": bootstrap})
    except OptionError as error:
        raise click.UsageError(str(error).rstrip(".")) from None
