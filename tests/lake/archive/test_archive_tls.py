"""The lake reaches a broker behind TLS: the commands, the archive's driver and its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli.main import main
from headrace.client import Admin, Producer
from headrace.client.connection import ClientSecurity
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.connecting import Connecting
from headrace.lake.storage.place import place_of
from tests.broker_process import BrokerProcess
from tests.lake.archiving import table_of
from tests.lake.other_reader import rows_of
from tests.lake.tls_way import SERVER_PEM, TlsWay, tls_way

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

TLS = ClientSecurity(tls=True, ca_file=str(SERVER_PEM))
KAFKA = ("--kafka", "security.protocol=SSL", "--kafka", f"ssl.truststore.location={SERVER_PEM}")


@pytest.fixture
def way(tmp_path: Path) -> Iterator[TlsWay]:
    """TLS in front of a broker that tells its clients this address, with a topic of ten records."""
    with tls_way() as way:
        broker = BrokerProcess(tmp_path / "data", advertised=way.address)
        broker.start()
        way.broker = (broker.host, broker.port)
        with Connecting(way.address, security=TLS).cluster() as cluster:
            Admin(cluster).create_topic("orders", 1)
            with Producer(cluster) as producer:
                for n in range(10):
                    producer.send("orders", b"%d" % n)
        yield way
        broker.end()


def test_topics_behind_tls_are_archived_and_proved(spark: SparkSession, way: TlsWay, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    connecting = Connecting(way.address, security=TLS)
    with connecting.cluster() as cluster:
        cluster.retrying(lambda: cluster.refresh([]))
        Archive(spark, cluster, ArchiveSettings(place_of(lake), ["orders"]), connecting=connecting).run_once()
    assert len(rows_of(table_of(lake, "orders"))) == 10
    common = ("--lake", str(lake), "--bootstrap", way.address, *KAFKA)
    for command in ("status", "verify", "expire"):
        assert CliRunner().invoke(main, ["lake", command, *common]).exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("security.protocol=TLS", "it must be PLAINTEXT or SSL"),
        ("no.such=1", "There is no option 'kafka.no.such' here"),
        ("nonsense", "is not KEY=VALUE"),
        ("ssl.keystore.location=/no/such.pem", "No such file"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(given: str, said: str, tmp_path: Path) -> None:
    words = ["lake", "status", "--lake", str(tmp_path), "--kafka", "security.protocol=SSL", "--kafka", given]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 2
    assert said in ran.output
