"""How the lake connects to a cluster: the `kafka.*` options, in a form that can be sent to Spark's workers.

The rule: a setting that cannot be honoured is rejected in one sentence, never ignored. A cluster that was reachable
before is retried while it restarts (`patient_cluster`); one that never was is probably mistyped, and is not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.client.cluster import parse_broker_address
from headrace.client.connection import ClientSecurity
from headrace.client.errors import PropertyError
from headrace.client.properties import PROPERTIES, parse_security
from headrace.client.sasl import SaslRefused

PAUSE_S = 0.25
DEFAULT_TIMEOUT_MS = 60_000


class OptionError(ValueError):
    """A missing, unknown or wrong option, as one sentence for the user."""


class Connecting(msgspec.Struct, frozen=True):
    """A cluster's address and how to connect to it."""

    bootstrap: str
    client_id: str = "headrace-lake"
    timeout_s: float = DEFAULT_TIMEOUT_MS / 1000
    read_committed: bool = True
    security: ClientSecurity = ClientSecurity()

    def __repr__(self) -> str:
        return f"Connecting({self.bootstrap!r})"

    def cluster(self) -> Cluster:
        """A client of the cluster, which connects at its first call."""
        security = self.security
        return Cluster(self.bootstrap, self.timeout_s, self.client_id, security.ssl_context(), security.sasl)

    def patient_cluster(self) -> Cluster:
        """The same, connected: retried until the timeout."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            cluster = self.cluster()
            try:
                Admin(cluster).describe_cluster()
                return cluster
            except BrokerUnreachable as error:
                cluster.close()
                if isinstance(error, SaslRefused) or time.monotonic() + PAUSE_S > deadline:
                    raise
                time.sleep(PAUSE_S)


KAFKA_OPTIONS = tuple(sorted(("bootstrap.servers", "client.id", "isolation.level", "request.timeout.ms", *PROPERTIES)))


def parse_connecting(options: Mapping[str, str]) -> Connecting:
    """The `kafka.*` options, given without that prefix."""
    for name in options:
        if name not in KAFKA_OPTIONS:
            known = ", ".join(f"kafka.{known}" for known in KAFKA_OPTIONS)
            raise OptionError(f"There is no option 'kafka.{name}' here; the supported Kafka settings are {known}.")
    bootstrap = options.get("bootstrap.servers", "")
    if not bootstrap.strip():
        raise OptionError("Option 'kafka.bootstrap.servers' is missing: give host:port of one or more brokers.")
    for address in bootstrap.split(","):
        try:
            parse_broker_address(address)
        except ValueError as error:
            raise OptionError(f"Option 'kafka.bootstrap.servers': {error}") from None
    try:
        security = parse_security(options)
    except PropertyError as error:
        raise OptionError(f"Option 'kafka.{error.name}' {error.trouble}.") from None
    return Connecting(
        bootstrap=bootstrap,
        client_id=options.get("client.id", "headrace-lake"),
        timeout_s=_timeout_ms(options.get("request.timeout.ms", str(DEFAULT_TIMEOUT_MS))) / 1000,
        read_committed=_one_of(options, "isolation.level", ("read_committed", "read_uncommitted")) == "read_committed",
        security=security,
    )


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """The option's value, by default the first of those allowed."""
    value = options.get(name, allowed[0]).lower()
    if value not in allowed:
        raise OptionError(f"Option 'kafka.{name}' is '{options[name]}'; it must be {' or '.join(map(repr, allowed))}.")
    return value


def _timeout_ms(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise OptionError(f"Option 'kafka.request.timeout.ms' is '{text}'; it must be a number of milliseconds.")
    return int(text)
