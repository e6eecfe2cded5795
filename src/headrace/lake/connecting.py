"""How the lake reaches a cluster: the `kafka.*` options, as something that travels to Spark's workers.

Rule kept here: a setting that cannot be honoured is refused in one sentence, never ignored. A cluster that was
reached before is waited for while it restarts (`patient_cluster`); one that was not, most likely mistyped, is not.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Mapping

import msgspec

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.client.cluster import parse_address
from headrace.client.sasl import MECHANISMS, Sasl

PAUSE_S = 0.25
DEFAULT_TIMEOUT_MS = 60_000


class OptionError(ValueError):
    """An option that is missing, unknown or wrong, as one sentence for its user."""


class Connecting(msgspec.Struct, frozen=True):
    """Where a cluster is and how to speak to it."""

    bootstrap: str
    client_id: str = "headrace-lake"
    timeout_s: float = DEFAULT_TIMEOUT_MS / 1000
    read_committed: bool = True
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
    sasl: Sasl | None = None

    def __repr__(self) -> str:
        return f"Connecting({self.bootstrap!r})"

    def cluster(self) -> Cluster:
        """A client of the cluster, which connects at its first call."""
        return Cluster(self.bootstrap, self.timeout_s, self.client_id, self._ssl_context(), self.sasl)

    def patient_cluster(self) -> Cluster:
        """The same, connected: a cluster that does not answer is asked again until the timeout."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            cluster = self.cluster()
            try:
                Admin(cluster).describe_cluster()
                return cluster
            except BrokerUnreachable:
                cluster.close()
                if time.monotonic() + PAUSE_S > deadline:
                    raise
                time.sleep(PAUSE_S)

    def _ssl_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.check_hostname
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, password=self.key_password)
        return context


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')

KAFKA_OPTIONS = (
    "bootstrap.servers",
    "client.id",
    "isolation.level",
    "request.timeout.ms",
    "sasl.jaas.config",
    "sasl.mechanism",
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)


def parse_connecting(options: Mapping[str, str]) -> Connecting:
    """The `kafka.*` options, given without that prefix."""
    for name in options:
        if name not in KAFKA_OPTIONS:
            known = ", ".join(f"kafka.{known}" for known in KAFKA_OPTIONS)
            raise OptionError(f"There is no option 'kafka.{name}' here; of Kafka's own settings there are {known}.")
    bootstrap = options.get("bootstrap.servers", "")
    if not bootstrap.strip():
        raise OptionError("Option 'kafka.bootstrap.servers' is missing: give host:port of one or more brokers.")
    for address in bootstrap.split(","):
        try:
            parse_address(address)
        except ValueError as error:
            raise OptionError(f"Option 'kafka.bootstrap.servers': {error}") from None
    for store in ("ssl.keystore.type", "ssl.truststore.type"):
        if options.get(store, "PEM").upper() != "PEM":
            raise OptionError(f"Option 'kafka.{store}' is '{options[store]}'; only PEM files are read.")
    return Connecting(
        bootstrap=bootstrap,
        client_id=options.get("client.id", "headrace-lake"),
        timeout_s=_timeout_ms(options.get("request.timeout.ms", str(DEFAULT_TIMEOUT_MS))) / 1000,
        read_committed=_one_of(options, "isolation.level", ("read_committed", "read_uncommitted")) == "read_committed",
        tls=_security_protocol(options).endswith("SSL"),
        ca_file=options.get("ssl.truststore.location"),
        certificate_file=options.get("ssl.keystore.location"),
        key_password=options.get("ssl.key.password"),
        check_hostname=_one_of(options, "ssl.endpoint.identification.algorithm", ("https", "")) == "https",
        sasl=_sasl(options) if _security_protocol(options).startswith("SASL") else None,
    )


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """The option's value, the first of those allowed unless it is set."""
    value = options.get(name, allowed[0]).lower()
    if value not in allowed:
        raise OptionError(f"Option 'kafka.{name}' is '{options[name]}'; it takes {' or '.join(map(repr, allowed))}.")
    return value


def _security_protocol(options: Mapping[str, str]) -> str:
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise OptionError(f"Option 'kafka.security.protocol' is '{protocol}'; it takes {' or '.join(PROTOCOLS)}.")
    return protocol


def _sasl(options: Mapping[str, str]) -> Sasl:
    """User and password, from the line that Kafka's own client takes them from."""
    mechanism = options.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        raise OptionError(f"Option 'kafka.sasl.mechanism' is '{mechanism}'; it takes {' or '.join(MECHANISMS)}.")
    login = dict(_LOGIN.findall(options.get("sasl.jaas.config", "")))
    if not {"username", "password"} <= login.keys():
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        raise OptionError(
            "Option 'kafka.sasl.jaas.config' names no user and password; it takes a line such as "
            f'org.apache.kafka.common.security.{module} required username="..." password="...";'
        )
    user, password = (re.sub(r"\\(.)", r"\1", login[name]) for name in ("username", "password"))
    return Sasl(mechanism, user, password)


def _timeout_ms(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise OptionError(f"Option 'kafka.request.timeout.ms' is '{text}'; it takes a number of milliseconds.")
    return int(text)
