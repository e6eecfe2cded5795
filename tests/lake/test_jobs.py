"""What Spark says when a job fails, as the one line that a person needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.lake.jobs import cause_of
from headrace.lake.session import _with_tries
from tests.cli.conftest import environment

CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: "
ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most "
    "recent failure: Lost task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor driver): "
)
FRAMES = "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:774)\n\t... 22 more\n"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            f"{CALL}{ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n{FRAMES}"
            f"Caused by: java.io.EOFException\n{FRAMES}",
            "a Python worker died",
        ),
        (
            f"{CALL}{ABORTED}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "task.py", line 3, in run\n    raise OSError("no such bucket")\n'
            f"OSError: no such bucket\n\n{FRAMES}\nDriver stacktrace:\n{FRAMES}",
            "OSError: no such bucket",
        ),
        (
            f"{CALL}{ABORTED}ExecutorLostFailure\n{FRAMES}Caused by: java.lang.OutOfMemoryError: Java heap space\n"
            f"{FRAMES}",
            "OutOfMemoryError: Java heap space",
        ),
        (
            f"{CALL}org.apache.spark.SparkException: EOFException occurred while reading the port number from "
            f"pyspark.daemon's stdout.\n{FRAMES}",
            "a Python worker died",
        ),
        (
            f"{CALL}java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n{FRAMES}",
            "IllegalStateException: Cannot call methods on a stopped SparkContext.",
        ),
        ("Answer from Java side is empty", "Answer from Java side is empty"),
        ("", "it gives no reason"),
    ],
)
def test_a_failure_is_told_by_its_cause(said: str, cause: str) -> None:
    assert cause_of(said) == cause


@pytest.mark.parametrize(
    ("master", "tried"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("spark://hub:7077", "spark://hub:7077"),
    ],
)
def test_a_local_master_tries_tasks_again_as_a_cluster_does(master: str, tried: str) -> None:
    assert _with_tries(master) == tried


_STARTED_TWICE = """
from headrace.lake.jobs import JobFailed, SparkJobs
from headrace.lake.session import OwnSpark
jobs = SparkJobs(OwnSpark(), lambda sentence: None)
for _ in range(2):
    try:
        jobs.run([b""], bytes)
    except JobFailed as failed:
        print(failed)
"""


def test_spark_that_does_not_start_is_tried_again_and_says_why(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _STARTED_TWICE],
        capture_output=True, text=True, check=True, env=environment(JAVA_HOME=str(tmp_path), TMPDIR=str(tmp_path)),
    )  # fmt: skip
    (last,) = tmp_path.glob("headrace-spark-*/spark.log")
    told = ran.stdout.splitlines()
    assert len(told) == 2
    assert told[1].startswith("Spark did not start (")
    assert told[1].endswith(f"); its output is in {last}")
    assert "Traceback" not in ran.stderr
