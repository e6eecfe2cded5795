"""The archive: a loop on the driver that copies topics into their tables, each record once.

A round is in `round`. Here is what happens between rounds: when the next one is due, when everything requested is done,
and what a failure costs. A temporary failure (a broker or Spark that is gone, a full disk) costs the round, is reported
in one sentence, and is retried after a pause.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headrace.client import Cluster
from headrace.lake.archive.plan import Offsets
from headrace.lake.archive.round import ArchiveSettings, Carrier, Round, Step
from headrace.lake.archive.troubles import FIRST_PAUSE_S, Troubles, failure_sentence, pauses
from headrace.lake.connecting import Connecting
from headrace.lake.jobs import SparkJobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
FRUITLESS_ROUNDS = 20
FRUITLESS_PAUSE_S = 0.25


class Stuck(OSError):
    """Records that the broker claims to have do not arrive."""


class Archive:
    """Copies topics into tables. `say` gets messages for the user, `at_step` is called between the steps."""

    def __init__(
        self,
        spark: SparkSession | SparkJobs,
        cluster: Cluster,
        settings: ArchiveSettings,
        *,
        connecting: Connecting | None = None,
        say: Callable[[str], None] = lambda sentence: None,
        progress: Callable[[Round], None] = lambda done: None,
        at_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        jobs = spark if isinstance(spark, SparkJobs) else SparkJobs(spark)
        bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
        # Tasks reach the cluster as the driver does.
        connecting = msgspec.structs.replace(connecting or Connecting(bootstrap), client_id="headrace-archive")
        self._settings, self._say, self._progress = settings, say, progress
        troubles = Troubles(say)
        self._carrier = Carrier(jobs, cluster, settings, connecting, troubles, at_step)
        self.troubles = troubles.stopped
        """Why a partition is stopped, by topic and partition; checked again in each round."""
        self.topics, self.derivation = self._carrier.topics, self._carrier.derivation

    def run_once(self) -> None:
        """Archives all records that the topics have at the time of the call."""
        try:
            self._run_once()
        except Exception:
            self._carrier.clear()
            raise

    def _run_once(self) -> None:
        ends = self.topics.ends(self.topics.look())
        fruitless = 0
        while fruitless < FRUITLESS_ROUNDS:
            done = self.round(ends)
            done.is_last = done.lag == done.typed.lag == 0
            self._progress(done)
            if done.setbacks.error is not None:
                raise done.setbacks.error
            if done.is_last:
                return
            fruitless = 0 if done.commits or done.typed.commits else fruitless + 1
            if fruitless:
                time.sleep(FRUITLESS_PAUSE_S)
        why = done.setbacks.sentence() or "can Spark's tasks reach the broker?"
        raise Stuck(f"{done.lag or done.typed.lag:,} offsets did not arrive in {fruitless} attempts; {why}")

    def run(self, stop: threading.Event) -> None:
        """Archives new records until `stop`: every `commit_every_s`, or as soon as there are enough."""
        last, waits = float("-inf"), pauses()
        while not stop.is_set():
            done, failure = None, None
            try:
                if self._is_due(last):
                    last = time.monotonic()
                    done = self.round()
                    self._progress(done)
                    failure = done.setbacks.sentence()
                    if done.typed.commits and done.typed.lag:
                        last = float("-inf")
            except Exception as error:
                failure = self._failed(error)
            if failure:
                self._carrier.clear()
                pause_s = next(waits)
                if done is not None and done.commits:
                    # So that the other topics continue.
                    pause_s = min(pause_s, max(FIRST_PAUSE_S, self._settings.commit_every_s))
                self._say(f"{failure.rstrip('.')}; retrying in {pause_s:g} s")
                last = float("-inf")
                self._rest(stop, pause_s)
            else:
                waits = pauses()
                stop.wait(min(LOOK_EVERY_S, self._settings.commit_every_s))

    def _rest(self, stop: threading.Event, pause_s: float) -> None:
        """Waits after a failure, at most until the unaffected topics have enough for a round."""
        end = time.monotonic() + pause_s
        while (left_s := end - time.monotonic()) > 0 and not stop.wait(min(LOOK_EVERY_S, left_s)):
            with contextlib.suppress(Exception):  # the next round reports it
                if self._has_enough():
                    return

    def _is_due(self, last: float) -> bool:
        return self._has_enough() or time.monotonic() - last >= self._settings.commit_every_s

    def _has_enough(self) -> bool:
        return self._carrier.waiting_bytes() >= self._settings.commit_bytes

    def _failed(self, error: Exception) -> str:
        """The message for a failed round."""
        self._carrier.forget()
        log.debug("an archive round failed", exc_info=error)
        return failure_sentence(error)

    def round(self, ends: Offsets | None = None) -> Round:
        """One round over all topics, up to `ends` if given."""
        return self._carrier.round(ends)
