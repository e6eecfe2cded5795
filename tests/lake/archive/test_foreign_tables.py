"""A table that is not ours, or cannot be read, is the trouble of its own topic and of no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from headrace.client import Cluster
from headrace.lake.archive.loop import Archive
from headrace.lake.archive.round import ArchiveSettings
from headrace.lake.records.table_schema import TABLE_SCHEMA
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.snapshot import Identity
from tests.broker_process import BrokerProcess, wait_until
from tests.cli.conftest import Ran, run_command
from tests.conftest import StartBroker
from tests.lake.archiving import archive_once, records_of, table_of
from tests.lake.conftest import Topic
from tests.lake.local_archive import archive_locally
from tests.lake.made_table import written
from tests.lake.other_reader import count_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


@pytest.fixture
def theirs(broker: BrokerProcess, topic: str, tmp_path: Path) -> Iterator[Topic]:
    """A topic in whose place lies a table of another cluster."""
    made = Topic(broker, f"a{topic}", 2)
    made.send([b"x"])
    open_or_create(place_of(tmp_path), Identity("another-cluster", made.name, bytes(16)), {})
    yield made
    made.cluster.close()


def test_status_and_verify_name_the_cluster_of_a_table_that_is_of_another(theirs: Topic, tmp_path: Path) -> None:
    said = f"{theirs.name}: its table belongs to cluster another-cluster, so it is not compared with this one"
    for command in ("status", "verify"):
        ran = run_command("lake", command, "--lake", str(tmp_path), "--bootstrap", theirs.address)
        assert ran.code == 0
        assert ran.err.splitlines().count(said) == 1
    table = open_or_create(place_of(tmp_path), Identity("another-cluster", theirs.name, bytes(16)), {})
    table.commit([written(table.place, 0, 0, 10)])
    ran = run_command("lake", "status", "--lake", str(tmp_path), "--bootstrap", theirs.address)
    assert f"{theirs.name} (another cluster)" in ran.out


def test_it_stops_its_own_topic_alone(spark: SparkSession, theirs: Topic, orders: Topic, tmp_path: Path) -> None:
    orders.send([b"%d" % n for n in range(100)])
    said: list[str] = []
    with Cluster(orders.address) as cluster:
        archive = Archive(
            spark, cluster, ArchiveSettings(place_of(tmp_path), [theirs.name, orders.name]), say=said.append
        )
        archive.run_once()
    assert [*archive.troubles] == [(theirs.name, 0), (theirs.name, 1)]
    assert len(said) == 1
    assert said[0].startswith(f"{theirs.name} is not archived: ")
    assert "of cluster another-cluster" in said[0]
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)


def test_a_topic_whose_table_was_exchanged_while_the_archive_runs_joins_again_once_it_is_mended(
    spark: SparkSession, orders: Topic, broker: BrokerProcess, tmp_path: Path
) -> None:
    other = Topic(broker, f"b{orders.name}", 1)
    names = [orders.name, other.name]
    stop, said = threading.Event(), list[str]()
    with Cluster(orders.address) as cluster:
        settings = ArchiveSettings(place_of(tmp_path), names, commit_every_s=0.1)
        archive = Archive(spark, cluster, settings, say=said.append)
        thread = threading.Thread(target=archive.run, args=(stop,))
        thread.start()
        try:
            for topic in (orders, other):
                topic.send([b"1"])
                await_rows(tmp_path, topic, 1)
            table = table_of(tmp_path, orders.name)
            table.rename(tmp_path / "_.away")
            write_deltalake(str(table), pa.table({"a": [1]}))
            orders.send([b"2"])
            wait_until(lambda: (orders.name, 0) in archive.troubles, "the foreign table is not seen")
            other.send([b"2"])
            await_rows(tmp_path, other, 2)
            table.rename(tmp_path / "_.foreign")
            (tmp_path / "_.away").rename(table)
            await_rows(tmp_path, orders, 2)
        finally:
            stop.set()
            thread.join()
    assert any("is a Delta table that Headrace did not create" in sentence for sentence in said)
    for topic in (orders, other):
        assert rows_of(table_of(tmp_path, topic.name)) == records_of(orders.address, topic.name)
    other.cluster.close()


def await_rows(lake: Path, topic: Topic, count: int) -> None:
    wait_until(lambda: count_rows(table_of(lake, topic.name)) == count, f"{topic.name} does not come to {count}", 60)


@pytest.fixture
def lake(orders: Topic, tmp_path: Path) -> Path:
    """One table of ours, one of somebody else, one that cannot be read."""
    orders.send([b"%d" % n for n in range(100)])
    archive_locally(orders.address, tmp_path, orders.name)
    write_deltalake(str(tmp_path / "silver"), pa.table({"a": [1]}))
    broken = tmp_path / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / "00000000000000000000.json").write_text("nonsense")
    return tmp_path


def test_commands_do_the_rest_and_say_what_they_left_out(lake: Path, orders: Topic) -> None:
    ours = ["--lake", lake]
    asking = [*ours, "--bootstrap", orders.address]

    def check(ran: Ran) -> str:
        said = ran.sentence()
        assert "silver is a Delta table that Headrace did not create. Move it away or use another --lake" in said
        assert "broken: " in said
        return ran.out

    status = run_command("lake", "status", *asking)
    check(status)
    assert status.table[0][:6] == [orders.name, "0", "0-99", "0-99", "0", "100"]
    assert [p["topic"] for p in run_command("lake", "status", *asking, "--json").json] == [orders.name] * 2
    proof = run_command("lake", "verify", *asking)
    assert check(proof) == "100 rows in 1 file of 1 table, 100 rows compared with the topics: 0 findings\n"
    assert check(run_command("lake", "compact", *ours)) == f"{orders.name}: nothing to do\n"
    assert check(run_command("lake", "expire", *asking)) == "nothing to expire\n"
    assert check(run_command("lake", "vacuum", *ours)) == f"{orders.name}: 0 files deleted\n"
    assert check(run_command("lake", "parse", *ours)) == "0 rows parsed, 0 rejected\n"
    check(run_command("lake", "schema", "list", *ours))
    for command in ("status", "verify"):
        assert run_command("lake", command, *asking, "--topics", orders.name).code == 0


def test_a_file_of_somebody_else_that_cannot_be_read_is_a_finding(lake: Path, orders: Topic) -> None:
    table = table_of(lake, orders.name)
    (table / "theirs.parquet").write_bytes(b"no Parquet")
    added = AddAction("theirs.parquet", 10, {}, 0, True, "{}")
    DeltaTable(str(table)).create_write_transaction([added], "append", TABLE_SCHEMA)
    proof = run_command("lake", "verify", "--lake", lake, "--bootstrap", orders.address, "--topics", orders.name)
    assert proof.code == 1
    assert f"{orders.name}: the archive did not write this file, which cannot be read" in proof.out


def test_named_topics_are_archived_and_no_others(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    broker = start_broker(lake=lake)
    for name in ("named", "tiered"):
        topic = Topic(broker, name, 1)
        topic.send([b"x"])
        if name == "tiered":
            topic.admin.alter_configs(name, {"remote.storage.enable": "true"})
        topic.cluster.close()
    archive_once(spark, broker.address, lake, "named")
    assert [folder.name for folder in lake.iterdir()] == ["named"]
    with Cluster(broker.address) as cluster:
        Archive(spark, cluster, ArchiveSettings(place_of(lake))).run_once()
    assert sorted(folder.name for folder in lake.iterdir()) == ["named", "tiered"]


def test_topics_that_are_not_there_end_a_single_run_with_a_sentence(orders: Topic, tmp_path: Path) -> None:
    options = ["--lake", tmp_path / "lake", "--bootstrap", orders.address, "--once"]
    said = run_command("lake", "archive", *options, "--topics", "nope,neither").sentence()
    assert said == "there is no topic nope and no neither"
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(("inside", "why"), [("file", "is a file, not a folder"), ("file/lake", "Not a directory")])
def test_a_lake_that_cannot_be_written_to_is_told_before_spark_starts(
    inside: str, why: str, orders: Topic, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    options = ["--lake", tmp_path / inside, "--bootstrap", orders.address, "--topics", orders.name]
    said = run_command("lake", "archive", *options, JAVA_HOME=str(tmp_path)).sentence()
    assert said.startswith(str(tmp_path / inside))
    assert said.endswith(why)
