"""Runs tasks on Spark, collects their results, and reports failures in one line.

Spark is a process that can die, for example by running out of memory. So our own session is restarted by the next job,
and a failure names its cause, not where in Spark's code it surfaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.lake.session import NoJava, OwnSpark
from headrace.lake.table.names import new_mark
from headrace.lake.worker import run_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_GONE = "Spark's JVM is gone"
_TRACEBACK = "Traceback (most recent call last):"
_JAVA_CAUSE = re.compile(r"^(?:: |Caused by: )?(?:[\w$]+\.)+([\w$]+(?:Exception|Error)): (.+)$")
_WORKER_DIED = re.compile(
    "Python worker exited unexpectedly|Python worker failed to connect back|from pyspark.daemon's stdout"
)


class JobFailed(OSError):
    """Spark failed a job; nothing of it was committed."""


class SparkJobs:
    """Runs tasks in a given session, or in our own, which is restarted if it is gone."""

    def __init__(self, spark: SparkSession | OwnSpark, say: Callable[[str], None] = lambda sentence: None) -> None:
        self._own = spark if isinstance(spark, OwnSpark) else None
        self._given = None if isinstance(spark, OwnSpark) else spark
        self._say = say
        self.mark = new_mark()
        """The mark in the names of our tasks' files."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        try:
            return self._session().sparkContext.defaultParallelism
        except Exception as error:
            raise self._failed(error) from error

    def run(self, tasks: Sequence[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
        """The results of the tasks, in order; `JobFailed` if one has none."""
        # With an RDD, because the DataFrame API, mapInArrow, would require pandas without using it.
        try:
            context = self._session().sparkContext
            return context.parallelize(tasks, len(tasks)).map(partial(run_task, self.mark, run)).collect()
        except Exception as error:
            raise self._failed(error) from error

    def _session(self) -> SparkSession:
        if self._given is not None:
            return self._given
        assert self._own is not None
        if self._own.is_gone():
            self._say(f"{SPARK_GONE}: restarting it")
            self._own.start()
        return self._own.session

    def _failed(self, error: Exception) -> JobFailed:
        if isinstance(error, NoJava):
            return JobFailed(str(error))
        if self._own is not None and self._own.is_gone():
            return JobFailed(f"{SPARK_GONE}: {self._own.why_gone()}")
        return JobFailed(f"Spark could not run the tasks: {cause_of(str(error))}")


def cause_of(said: str) -> str:
    """The cause of a failure in one line, extracted from Spark's long messages."""
    lines = said.strip().splitlines()
    if _TRACEBACK in said:
        # A Python task: its traceback comes before Java's own, indented except for the exception.
        start = max(at for at, line in enumerate(lines) if _TRACEBACK in line)
        raised = [line for line in lines[start + 1 :] if line and not line[0].isspace()]
        if raised:
            return raised[0].strip()
    if _WORKER_DIED.search(said):
        return "a Python worker died"
    causes = [found for line in lines if (found := _JAVA_CAUSE.match(line.strip()))]
    if causes:
        name, words = causes[-1].groups()
        return f"{name}: {words}"
    told = [line.strip() for line in lines if not line.lstrip().startswith(("at ", "... "))]
    return told[0] if told else "it gives no reason"
