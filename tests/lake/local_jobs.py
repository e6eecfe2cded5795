"""An archive's tasks, run in the test's own process: for what becomes of a round, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from headrace.lake.jobs import SparkJobs
from headrace.lake.table.names import marked, new_mark


class LocalJobs(SparkJobs):
    """Runs tasks one after another."""

    def __init__(self) -> None:
        self.mark = new_mark()

    @property
    def parallelism(self) -> int:
        return 1

    def run(self, tasks: Sequence[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
        return [*map(partial(marked, self.mark, run), tasks)]
