"""Two organisations with a topic of one name in one lake: each has its own tables, and its login leads to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli.main import main
from headrace.client import Admin, Producer
from headrace.client.properties import parse_security, read_properties
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.plan import OtherOrganisation
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.connecting import Connecting
from headrace.lake.storage.place import place_of
from tests.lake.archiving import table_of
from tests.lake.other_reader import rows_of
from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

RECORDS = {ADMIN: 3, "acme/alice": 5}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    """A broker with `orders` in `default` and in `acme`, of different records."""
    found = SecuredBroker(tmp_path / "broker").start()
    (tmp_path / "password").write_text(ADMIN_PASSWORD)
    run(found, ADMIN, "orgs", "create", "acme", "--admin", "alice", "--password-file", str(tmp_path / "password"))
    for user, records in RECORDS.items():
        with connecting(found, user).cluster() as cluster:
            Admin(cluster).create_topic("orders", 1)
            with Producer(cluster) as producer:
                for n in range(records):
                    producer.send("orders", b"%d" % n)
    yield found
    found.process.end()


def connecting(secured: SecuredBroker, user: str) -> Connecting:
    properties = read_properties(secured.client_config(user))
    return Connecting(secured.address(), security=parse_security(properties))


def run(secured: SecuredBroker, user: str, *words: str) -> str:
    login = ("--bootstrap", secured.address(), "--client-config", str(secured.client_config(user)))
    ran = CliRunner().invoke(main, [*words, *login])
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_each_has_tables_of_its_own(spark: SparkSession, secured: SecuredBroker, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    roots = {ADMIN: lake, "acme/alice": lake / "_.orgs" / "acme"}

    def archive(user: str, root: Path) -> None:
        way = connecting(secured, user)
        with way.cluster() as cluster:
            cluster.retrying(lambda: cluster.refresh([]))
            Archive(spark, cluster, ArchiveSettings(place_of(root), ["orders"]), connecting=way).run_once()

    for user, root in roots.items():
        archive(user, root)
    for user, records in RECORDS.items():
        assert len(rows_of(table_of(roots[user], "orders"))) == records
        assert f"{records} rows" in run(secured, user, "lake", "verify", "--lake", str(lake))
        assert f"0-{records - 1}" in run(secured, user, "lake", "status", "--lake", str(lake))
    assert "acme/topics/orders" in run(secured, "acme/alice", "topics", "describe", "orders")
    with pytest.raises(OtherOrganisation, match="give --org acme"):
        archive("acme/alice", lake)
    with pytest.raises(OtherOrganisation, match="give --org default"):
        archive(ADMIN, roots["acme/alice"])
