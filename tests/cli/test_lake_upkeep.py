"""`headrace lake compact`, `expire` and `vacuum` as a person meets them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.client import Admin, Cluster, Producer
from headrace.lake.place import place_of
from headrace.lake.table import TopicTable
from tests.broker_process import BrokerProcess
from tests.cli.conftest import Run
from tests.lake.archiving import table_of
from tests.lake.local_archive import archive_locally

FILES, ROWS = 4, 10


@pytest.fixture
def archived(broker: BrokerProcess, topic: str, tmp_path: Path) -> str:
    """A topic of one partition, in a table of several files."""
    with Cluster(broker.address) as cluster:
        Admin(cluster).create_topic(topic, 1)
        for n in range(FILES):
            with Producer(cluster) as producer:
                for row in range(ROWS):
                    producer.send(topic, b"%d" % (n * ROWS + row))
            archive_locally(broker.address, tmp_path, topic)
    return topic


def test_files_are_merged_and_the_replaced_ones_deleted_in_time(run: Run, archived: str, tmp_path: Path) -> None:
    lake = ("--lake", str(tmp_path))
    assert run("lake", "compact", *lake).out == f"{archived}: {FILES} files merged into 1\n"
    (again,) = run("lake", "compact", *lake, "--json").json
    assert (again["topic"], again["merged"], again["into"]) == (archived, 0, 0)
    table = table_of(tmp_path, archived)
    orphan = table / "p0" / "left-behind.parquet"
    orphan.write_bytes(b"a task that was killed")
    long_ago = time.time() - 3 * 86_400
    os.utime(orphan, (long_ago, long_ago))
    assert run("lake", "vacuum", *lake, "--dry-run").out == f"{archived}: 1 file would be deleted\n"
    (gone,) = run("lake", "vacuum", *lake, "--json").json
    assert gone["files"] == ["p0/left-behind.parquet"]
    assert not orphan.exists()
    assert run("lake", "verify", *lake).out.endswith(": 0 findings\n")


def test_a_vacuum_of_less_than_a_day_is_refused(run: Run, archived: str, tmp_path: Path) -> None:
    said = run("lake", "vacuum", "--lake", str(tmp_path), "--retain-hours", "23", fails=True).sentence(2)
    assert "x>=24" in said


def test_old_rows_go_by_what_was_named(run: Run, archived: str, tmp_path: Path) -> None:
    lake = ("--lake", str(tmp_path), "--topics", archived)
    assert run("lake", "expire", *lake).out == "nothing to expire\n"
    shown = run("lake", "expire", *lake, "--before", "25", "--dry-run").out
    assert shown.splitlines()[1].split()[1:4] == ["0", "20", "2"]
    assert shown.endswith("nothing was deleted (--dry-run)\n")
    (gone,) = run("lake", "expire", *lake, "--before", "25", "--json").json
    assert (gone["partition"], gone["rows"], gone["start"]) == (0, 20, 20)
    assert TopicTable(place_of(table_of(tmp_path, archived))).coverage[0].start == 20
    assert run("lake", "verify", *lake).out.endswith(": 0 findings\n")
    said = run("lake", "expire", *lake, "--before", "latest", fails=True).sentence(2)
    assert "neither an offset nor a moment" in said
