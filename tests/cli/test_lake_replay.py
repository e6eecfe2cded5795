"""`headrace lake replay` as a person meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client import Admin, Cluster, Producer
from tests.broker_process import BrokerProcess
from tests.cli.conftest import Run
from tests.lake.archiving import table_of
from tests.lake.local_archive import archive_locally


@pytest.fixture
def archived(broker: BrokerProcess, topic: str, tmp_path: Path) -> str:
    """A topic of three partitions, in a table."""
    with Cluster(broker.address) as cluster:
        Admin(cluster).create_topic(topic, 3)
        with Producer(cluster) as producer:
            for n in range(30):
                producer.send(topic, b"%d" % n, b"key", partition=n % 3)
    archive_locally(broker.address, tmp_path, topic)
    return topic


def test_a_copy_is_made_once(run: Run, archived: str, tmp_path: Path) -> None:
    command = ("lake", "replay", "--lake", str(tmp_path), "--topic", archived, "--into", f"{archived}-copy")
    assert run(*command, fails=True).sentence() == f"There is no topic {archived}-copy: use --create"
    first = run(*command, "--create", "--json").json
    assert (first["sent"], first["already"], first["partitions"], first["partitioner"]) == (30, 0, 3, "keep")
    again = run(*command)
    assert again.out.startswith(f"sent 0 records to {archived}-copy in ")
    assert again.out.endswith("; 30 were there already\n")
    assert run(*command, "--run", "again", "--json").json["sent"] == 30


def test_partitions_and_ranges_are_read_from_the_command_line(run: Run, archived: str, tmp_path: Path) -> None:
    command = ("lake", "replay", "--lake", str(tmp_path), "--create", "--json")
    part = run(*command, "--topic", f"{archived}:0,2", "--into", f"{archived}-a", "--from", "2", "--to", "5").json
    assert part["sent"] == 6
    other = run(*command, "--topic", archived, "--into", f"{archived}-b", "--partitions", "5", "--to", "1h").json
    assert (other["sent"], other["partitions"], other["partitioner"]) == (0, 5, "key")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_cannot_be_read_is_named(run: Run, archived: str, tmp_path: Path, is_there: bool) -> None:
    file = next((table_of(tmp_path, archived) / "p1").glob("*.parquet"))
    file.unlink()
    if is_there:
        file.touch()
    command = ("lake", "replay", "--lake", str(tmp_path), "--topic", archived, "--into", f"{archived}-copy", "--create")
    said = run(*command, fails=True).sentence()
    if is_there:
        assert said == f"{file} cannot be read: Parquet file size is 0 bytes"
    else:
        assert said == f"No such file or directory: {file}"
        (found, *_) = run("lake", "verify", "--lake", str(tmp_path), "--offline", fails=True).out.splitlines()
        assert found == f"{archived}-1 @0: the file cannot be read: {said}"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--from", "latest"), "neither an offset nor a time"),
        (("--topic", "orders:x"), "is not TOPIC or TOPIC:0,2"),
        (("--run", "a/b"), "letters, digits, dots, dashes and underscores"),
    ],
)
def test_what_cannot_be_meant_is_said(run: Run, given: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    said = run("lake", "replay", "--lake", str(tmp_path), "--topic", "orders", *given, fails=True).sentence(2)
    assert sentence in said


def test_refusals_are_sentences(run: Run, archived: str, tmp_path: Path) -> None:
    command = ("lake", "replay", "--lake", str(tmp_path), "--topic")
    assert "--into-itself" in run(*command, archived, fails=True).sentence()
    assert run(*command, "nobody", fails=True).sentence().startswith("There is no Delta table in ")
    assert "has no partition 7" in run(*command, f"{archived}:7", fails=True).sentence(2)
    fewer = (archived, "--into", f"{archived}-1", "--create", "--partitions", "1", "--partitioner", "keep")
    assert "use --partitioner key" in run(*command, *fewer, fails=True).sentence(2)
