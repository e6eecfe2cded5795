"""Exactly once when the job is killed with SIGKILL, and the command as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING

import pytest

from headrace.lake.archive.status import lake_status
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from tests.cli.conftest import COMMAND, environment, run_command
from tests.lake.archiving import archive_once, records_of, table_of
from tests.lake.conftest import Topic
from tests.lake.other_reader import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("before-write", marks=pytest.mark.faults),
        "after-write",
        pytest.param("before-commit", marks=pytest.mark.faults),
        "after-commit",
    ],
)
def test_a_killed_job_neither_loses_nor_doubles(step: str, spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    for partition in (0, 1):
        orders.send([b"%d" % n for n in range(500)], partition=partition)
    killed = subprocess.run(
        [sys.executable, "-m", "tests.lake.killed_archive", orders.address, str(tmp_path), orders.name, step],
        cwd=ROOT, capture_output=True, timeout=TIMEOUT_S, check=False, env=environment(TMPDIR=str(tmp_path)),
    )  # fmt: skip
    assert killed.returncode == -SIGKILL, killed.stderr
    orders.send([b"%d" % n for n in range(500, 600)])
    archive_once(spark, orders.address, tmp_path, orders.name)
    assert rows_of(table_of(tmp_path, orders.name)) == records_of(orders.address, orders.name)
    assert len(records_of(orders.address, orders.name)) == 1100
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


@pytest.mark.usefixtures("java")
def test_the_command_archives_what_comes_until_it_is_told_to_stop(orders: Topic, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    orders.send([b"%d" % n for n in range(500)])
    options = ["--lake", str(lake), "--bootstrap", orders.address]
    command = [*COMMAND, "lake", "archive", *options, "--topics", orders.name]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not (lake.exists() and [p.rows for p in lake_status(place_of(lake), orders.cluster)] == [500, 0]):
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT_S)
    first, line, *_, last = err.splitlines()
    assert (process.returncode, first, last) == (0, "starting Spark", "500 rows archived")
    assert re.fullmatch(r"500 rows archived in \d+\.\d s, 0 to go", line)
    status = run_command("lake", "status", *options)
    assert status.table[0][:6] == [orders.name, "0", "0-499", "0-499", "0", "500"]
    proof = run_command("lake", "verify", *options)
    assert (proof.code, proof.out) == (
        0, "500 rows in 1 file of 1 table, 500 rows compared with the topics: 0 findings\n",
    )  # fmt: skip
    (file,) = lake.glob("*/p0/*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    proof = run_command("lake", "verify", *options)
    assert proof.code == 1
    assert f"{orders.name}-0 @0: the file has" in proof.out


def test_java_that_is_missing_or_too_old_is_one_sentence(orders: Topic, tmp_path: Path) -> None:
    arguments = ["lake", "archive", "--lake", tmp_path, "--topics", orders.name, "--bootstrap", orders.address]
    missing = run_command(*arguments, JAVA_HOME=str(tmp_path)).err.splitlines()[-1]
    assert missing.startswith(f"Error: Spark needs Java, and {tmp_path}/bin/java cannot be run: install a JDK 17")
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    said = run_command(*arguments, JAVA_HOME=str(tmp_path)).err.splitlines()[-1]
    assert said.startswith(f"Error: Spark needs Java 17 or later, and {old} is Java 11: install a JDK 17 or later")


def test_a_server_of_spark_connect_is_no_master(orders: Topic, tmp_path: Path) -> None:
    options = ["--lake", tmp_path, "--topics", orders.name, "--bootstrap", orders.address]
    said = run_command("lake", "archive", *options, "--master", "sc://hub").err.splitlines()[-1]
    assert said == "Error: sc://hub is a Spark Connect server; the archive needs a master, such as spark://hub:7077"


def test_a_lake_without_tables_and_a_topic_without_one_are_said(orders: Topic, tmp_path: Path) -> None:
    options = ["--lake", tmp_path, "--bootstrap", orders.address]
    assert run_command("lake", "status", *options).out == f"no tables in {tmp_path}\n"
    said = run_command("lake", "verify", *options, "--topics", orders.name).sentence()
    assert said.startswith("There is no Delta table in")
