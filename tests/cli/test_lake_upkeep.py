"""`headrace lake compact`, `expire` and `vacuum` as a person meets them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.client import Admin, Cluster, Producer
from headrace.lake.storage.place import place_of
from headrace.lake.table.table import TopicTable
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


@pytest.mark.parametrize("names", ["", " ", ","])
def test_no_name_is_not_every_table(run: Run, archived: str, tmp_path: Path, names: str) -> None:
    """What a script says whose variable is not set."""
    lake = ("--lake", str(tmp_path))
    said = run("lake", "expire", *lake, "--topics", names, "--before", "25", fails=True).sentence(2)
    assert said == "Invalid value for '--topics': it names no topic"
    assert run("lake", "expire", *lake, "--before", "25", "--dry-run").out.endswith("nothing was deleted (--dry-run)\n")


def test_no_place_is_not_the_folder_one_is_in(run: Run) -> None:
    said = run("lake", "status", "--lake", "", fails=True).sentence(2)
    assert said == "Invalid value for '--lake': it names no place"


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
    assert "neither an offset nor a time" in said


def test_a_proof_of_no_table_is_none(run: Run, tmp_path: Path) -> None:
    """A path with a typo in a script that runs each night."""
    lake = ("--lake", str(tmp_path / "typo"), "--offline")
    assert run("lake", "verify", *lake, fails=True).sentence() == f"no tables in {tmp_path / 'typo'}"
    assert run("lake", "verify", *lake, "--json", fails=True).json["topics"] == 0
