"""`format("kafka")` over TLS: each way to log in, with the right secret and with a wrong or expired one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.client import Admin, Cluster, Producer
from headrace.client.connection import ClientSecurity
from headrace.client.sasl import Sasl
from interop.report import expect, expect_in
from interop.spark.topics import LIMIT_S

_PACKAGE = "org.apache.kafka.common.security"
_TOPIC = "spark-logins"
_RECORDS = 10


class Logins:
    """The checks. All read one topic."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._spark = spark

    @property
    def checks(self) -> dict[str, Callable[[], None]]:
        passwords = {
            f"login over TLS ({mechanism}), and a wrong password": partial(self.password, mechanism)
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        }
        return {"a topic behind a login": self.fill, **passwords, "login by certificate, and without": self.certificate}

    def fill(self) -> None:
        security = ClientSecurity(tls=True, ca_file=os.environ["LOGIN_CA"])
        sasl = Sasl("SCRAM-SHA-512", os.environ["LOGIN_USER"], os.environ["LOGIN_PASSWORD"])
        with Cluster(os.environ["LOGIN_ADDRESS"], LIMIT_S, "interop", security.ssl_context(), sasl) as cluster:
            Admin(cluster).create_topic(_TOPIC, 1)
            with Producer(cluster) as producer:
                for number in range(_RECORDS):
                    producer.send(_TOPIC, b"%d" % number)

    def password(self, mechanism: str) -> None:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"

        def options(password: str) -> dict[str, str]:
            login = f'username="{os.environ["LOGIN_USER"]}" password="{password}";'
            return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{_PACKAGE}.{module} required {login}"}

        address = os.environ["LOGIN_ADDRESS"]
        expect("records", self._count("SASL_SSL", address, options(os.environ["LOGIN_PASSWORD"])), _RECORDS)
        expect_in("SaslAuthenticationException", self._refusal("SASL_SSL", address, options("wrong")))

    def certificate(self) -> None:
        """Its owner has no rights; who has none or an expired one does not get that far."""

        def options(name: str) -> dict[str, str]:
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": os.environ[name]}

        address = os.environ["LOGIN_SSL_ADDRESS"]
        refused = self._refusal("SSL", address, options("LOGIN_CERTIFICATE"))
        expect_in("TopicAuthorizationException", refused)
        expect_in("SslAuthenticationException", self._refusal("SSL", address, options("LOGIN_EXPIRED_CERTIFICATE")))
        expect_in("SslAuthenticationException", self._refusal("SSL", address, {}))

    def _count(self, protocol: str, address: str, options: Mapping[str, str]) -> int:
        reader = self._spark.read.format("kafka").option("subscribe", _TOPIC)
        settings = {
            "bootstrap.servers": address,
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.environ["LOGIN_CA"],
            **options,
        }
        for name, value in settings.items():
            reader = reader.option(f"kafka.{name}", value)
        return reader.load().count()

    def _refusal(self, protocol: str, address: str, options: Mapping[str, str]) -> str:
        try:
            self._count(protocol, address, options)
        except Exception as error:  # Spark wraps what Kafka's client throws in several of its own
            return str(error)
        raise AssertionError("it was let in")
