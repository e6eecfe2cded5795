"""`--bootstrap`: how commands find a broker, and how they report errors from it.

Every exception of the client becomes one sentence here, so that commands need no error handling of their own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.settings.layers import BOOTSTRAP_VARIABLE, CLIENT_CONFIG_VARIABLE
from headrace.client import BrokerUnreachable, Cluster, UnsupportedApi
from headrace.client.connection import ClientSecurity
from headrace.client.errors import TEMPORARY, PropertyError
from headrace.client.properties import PROPERTIES, parse_security, read_properties
from headrace.client.sasl import SaslRefused
from headrace.wire.errors import ErrorCode, KafkaError

Result = TypeVar("Result")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 10.0
_OTHER_PROPERTIES = ("bootstrap.servers", "client.id")
"""Common in such files, but ignored: here they are options."""

_SENTENCES = TEMPORARY | {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has active members; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has active members; stop them first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside the partition's range",
    ErrorCode.MESSAGE_TOO_LARGE: "the record is larger than the topic's max.message.bytes",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker does not let clients delete topics (delete_topics_enabled)",
}


class Seconds(click.ParamType[float]):
    """A time in seconds; click's own range type would clutter every help text."""

    name = "seconds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = 0.0
        if not 0.0 < seconds <= 86_400.0:
            self.fail(f"{value!r} is not a number of seconds above 0", param, ctx)
        return seconds


bootstrap_option = click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    default=DEFAULT_BOOTSTRAP,
    envvar=BOOTSTRAP_VARIABLE,
    help=f"Broker to connect to.  [{BOOTSTRAP_VARIABLE}; default {DEFAULT_BOOTSTRAP}]",
)
timeout_option = click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Seconds(),
    default=DEFAULT_TIMEOUT_S,
    help=f"Timeout for each request.  [default {DEFAULT_TIMEOUT_S:g}]",
)


client_config_option = click.option(
    "--client-config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar=CLIENT_CONFIG_VARIABLE,
    help=f"Properties file for TLS and login, as for Kafka's own tools.  [{CLIENT_CONFIG_VARIABLE}]",
)


def cluster_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds `--bootstrap`, `--client-config` and `--timeout`; the command is called with `cluster`."""

    @bootstrap_option
    @client_config_option
    @timeout_option
    @functools.wraps(command)
    def with_cluster(*args: Any, bootstrap: str, client_config: Path | None, timeout_s: float, **given: Any) -> Result:
        with open_cluster(bootstrap, timeout_s, client_config) as cluster:
            return command(*args, cluster=cluster, **given)

    return with_cluster


@contextlib.contextmanager
def open_cluster(bootstrap: str, timeout_s: float, client_config: Path | None) -> Iterator[Cluster]:
    """A cluster whose errors end the command with one sentence."""
    security = client_security(client_config)
    try:
        context = security.ssl_context()
    except PropertyError as error:
        raise click.UsageError(f"--client-config {client_config}: {error}") from None
    try:
        cluster = Cluster(bootstrap, timeout_s, "headrace-cli", context, security.sasl)
    except ValueError:
        raise click.UsageError(f"--bootstrap {bootstrap!r} is not HOST:PORT") from None
    with speaking_to(cluster, bootstrap):
        yield cluster


def client_security(client_config: Path | None) -> ClientSecurity:
    """TLS and login from the file; without a file, neither."""
    try:
        return parse_security(read_client_config(client_config))
    except PropertyError as error:
        raise click.UsageError(f"--client-config {client_config}: {error}") from None


def read_client_config(path: Path | None) -> dict[str, str]:
    """The file's properties; those that are not about security are refused."""
    if path is None:
        return {}
    try:
        found = read_properties(path)
    except ValueError as error:
        raise click.UsageError(f"--client-config: {error}") from None
    for name in found:
        if name not in PROPERTIES and name not in _OTHER_PROPERTIES:
            raise click.UsageError(
                f"--client-config {path}: '{name}' is not supported; the properties are {', '.join(PROPERTIES)}"
            )
    return {name: value for name, value in found.items() if name in PROPERTIES}


@contextlib.contextmanager
def speaking_to(cluster: Cluster, bootstrap: str) -> Iterator[None]:
    """Turns the cluster's errors into one sentence each, and closes it in the end."""
    with cluster:
        try:
            yield
        except (BrokerUnreachable, UnsupportedApi, KafkaError) as error:
            raise click.ClickException(sentence(error, cluster, bootstrap)) from None


def words_for(error: KafkaError) -> str:
    """A broker's error without its name: the broker's own words, or ours, if there are any."""
    return (error.message or _SENTENCES.get(error.code) or "").rstrip(".")


def sentence(error: Exception, cluster: Cluster, bootstrap: str) -> str:
    """The error in plain words."""
    if isinstance(error, KafkaError):
        said = words_for(error)
        return f"{said} ({error.code.name})" if said else error.code.name
    said = str(error).rstrip(".")
    if not isinstance(error, BrokerUnreachable) or isinstance(error, SaslRefused) or error.request_sent:
        return said
    if cluster.nodes:
        return f"{said}; the broker at {bootstrap} advertises that address to clients (its setting advertised)"
    why = said.rpartition(": ")[2]
    reason = "" if why == "Connection refused" else f" ({why})"
    return f"no broker at {bootstrap}{reason}; start one with `make run`, or name another with --bootstrap"
