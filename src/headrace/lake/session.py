"""A Spark session for our jobs: the right Java, the right Python, and nothing of Spark's talk on the terminal.

Spark's JVM writes to whatever stderr it was born with, for as long as it lives. So it is born with a log file there,
and the terminal stays the command's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class NoJava(RuntimeError):
    """Spark cannot run here, in one sentence."""


def check_java() -> None:
    """Raises `NoJava` where Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = (
        f"install a JDK {OLDEST_JAVA} or later (such as openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME to one"
    )
    if java is None:
        raise NoJava(f"Spark needs Java, and there is none on the PATH: {remedy}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        raise NoJava(f"Spark needs Java, and {java} cannot be run: {remedy}") from None
    match = _VERSION.search(said.stderr)
    if match is None:
        raise NoJava(f"Spark needs Java, and {java} does not say its version: {remedy}")
    if int(match[1]) < OLDEST_JAVA:
        raise NoJava(f"Spark needs Java {OLDEST_JAVA} or later, and {java} is Java {match[1]}: {remedy}")


@contextlib.contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """A session that ends with the block; local on all cores unless a master is named."""
    if master is not None and master.startswith("sc://"):
        raise ValueError(
            f"{master} is a server of Spark Connect; the archive needs a master, such as spark://hub:7077."
        )
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    handle, log = tempfile.mkstemp(prefix="headrace-spark-", suffix=".log")
    try:
        with _output_to(handle):
            spark = _start(master or "local[*]")
    except Exception as error:
        raise NoJava(f"Spark did not start ({str(error).splitlines()[0]}); what it said is in {log}") from error
    finally:
        os.close(handle)
    try:
        yield spark
    finally:
        spark.stop()
        os.unlink(log)


def _start(master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        # How long Spark waits for a Python process to come back to it: 15 s are too few for a machine that is busy.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.extraJavaOptions": _QUICK_START, "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.appName("headrace lake").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextlib.contextmanager
def _output_to(handle: int) -> Iterator[None]:
    """Processes that are started inside inherit `handle` as their output; ours is put back."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in kept:
            os.dup2(handle, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
