"""A Spark session for our jobs: the right Java, the right Python, and none of Spark's output on the terminal.

Spark's JVM writes to the stderr it was started with for as long as it lives. So it is started with a log file there,
and the terminal belongs to the command.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
TRIES = 4
"""Attempts per task. Spark's own default on a cluster; locally it would fail a job with the first dead worker."""
_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_EXIT_S = 10.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*\])?")


class NoJava(RuntimeError):
    """Spark cannot run here, in one sentence."""


def check_java() -> None:
    """Raises `NoJava` if Java is missing or too old."""
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
        raise NoJava(f"Spark needs Java, and {java} does not report its version: {remedy}")
    if int(match[1]) < OLDEST_JAVA:
        raise NoJava(f"Spark needs Java {OLDEST_JAVA} or later, and {java} is Java {match[1]}: {remedy}")


def check_master(master: str | None) -> None:
    """Raises `ValueError` for an invalid master."""
    if master is not None and master.startswith("sc://"):
        raise ValueError(f"{master} is a Spark Connect server; the archive needs a master, such as spark://hub:7077.")


@contextlib.contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """A session that ends with the block; local on all cores unless a master is given."""
    with own_spark(master) as own:
        yield own.session


@contextlib.contextmanager
def own_spark(master: str | None = None) -> Iterator[OwnSpark]:
    """The same as an object, which can restart the session."""
    check_master(master)
    check_java()
    own = OwnSpark(master)
    own.start()
    try:
        yield own
    finally:
        own.end()


class OwnSpark:
    """Our own session in its own JVM, which can be restarted after a crash."""

    def __init__(self, master: str | None = None) -> None:
        self._master = _with_tries(master or "local[*]")
        self._spark: SparkSession | None = None
        self._scratch: Path | None = None

    @property
    def session(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def start(self) -> None:
        """Starts it, replacing a dead one; `NoJava` if that is impossible."""
        self.end()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        _keep_py4j_quiet()
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
        output = self._scratch / "spark.log"
        try:
            with output.open("wb") as file, _output_to(file.fileno()):
                self._spark = _start(self._master, self._scratch)
        except Exception as error:
            _forget()
            why = str(error).splitlines()[0]
            raise NoJava(f"Spark did not start ({why}); its output is in {output}") from error

    def is_gone(self) -> bool:
        """Whether its JVM has died, or its cluster has stopped it."""
        if self._spark is None or _jvm_exit_code() is not None:
            return True
        try:
            return bool(self._spark.sparkContext._jsc.sc().isStopped())
        except Exception:  # whatever a half-dead gateway raises
            return True

    def why_gone(self) -> str:
        """How it ended, in a few words."""
        code = _jvm_exit_code(within_s=1.0)
        if code is None:
            return "its session was stopped"
        return f"it was killed with {Signals(-code).name}" if code < 0 else f"it exited with {code}"

    def end(self) -> None:
        """Ends the session, whether its JVM is alive or not."""
        if self._spark is not None:
            with warnings.catch_warnings(), contextlib.suppress(Exception):
                warnings.simplefilter("ignore")
                self._spark.stop()
            _forget()
            self._spark = None
        if self._scratch is not None:
            # A killed JVM leaves it behind, and an archive may outlive many.
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


def _with_tries(master: str) -> str:
    """A local master that retries tasks, as clusters do."""
    found = _LOCAL.fullmatch(master)
    return master if found is None else f"local[{found[1] or 1},{TRIES}]"


def _jvm_exit_code(within_s: float = 0.0) -> int | None:
    """The exit code of our JVM; None while it runs."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(within_s)
    return None


def _forget() -> None:
    """Lets PySpark start a new JVM: by itself it keeps asking the dead one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    gateway = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None and process.poll() is None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.stdin.close()  # it ends with its input, and removes its files
                process.wait(_EXIT_S)
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _keep_accumulators_quiet(spark: SparkSession) -> None:
    """Suppresses the traceback that PySpark's server prints when its JVM is gone."""
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = lambda request, address: None


def _keep_py4j_quiet() -> None:
    """Suppresses Py4J's log of a lost JVM, with its traceback; the caller gets the exception anyway."""
    root = logging.getLogger()
    if not root.handlers:
        # Like Python's handler of last resort; otherwise Py4J would set up its own.
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
        root.addHandler(handler)


def _start(master: str, scratch: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        # How long Spark waits for a Python process to connect: 15 s are too short on a busy machine.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if master.startswith("local"):
        # Spark's own files are there, too, unless its settings name another folder.
        java_options = f'{_QUICK_START} -Djava.io.tmpdir="{scratch}"'
        settings |= {"spark.driver.extraJavaOptions": java_options, "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.appName("headrace lake").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _keep_accumulators_quiet(spark)
    return spark


@contextlib.contextmanager
def _output_to(handle: int) -> Iterator[None]:
    """Processes started inside inherit `handle` as their output; ours is restored."""
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
