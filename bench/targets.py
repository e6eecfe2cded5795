"""What each figure is held against, and for a target that is missed the reason that was found.

A target belongs to a goal; a figure names its goal. The reasons are kept by hand: whoever finds out why a ratio is
what it is writes it here, and the report shows it beside the miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.report import KAFKA, NULL_BROKER, RAW_REDIS

SPARK_KAFKA = "Spark's Kafka connector"
FROM_REDIS = "from Redis"
ALONE = "without cold consumers"
LIMIT = "the limit"


@dataclass(frozen=True)
class Target:
    """The ratio of Headrace's figure to another's that we want, at least or at most."""

    goal: str
    text: str
    against: str
    bound: Literal["at least", "at most"]
    ratio: float
    reason: str = ""

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.bound == "at least" else ratio <= self.ratio

    def badness(self, ratio: float) -> float:
        """Above 1 it is missed, the more the worse."""
        if self.bound == "at most":
            return ratio / self.ratio
        return self.ratio / ratio if ratio else float("inf")


_TWO_PROCESSES = (
    "client, broker and store share the 2 cores, and the client alone fills most of them: what is left is the CPU of"
    " the store (0.9 to 1.5 ms for a MB of 1 KB records: it copies a batch from the socket, into the stream and to its"
    " log file), which no other system here has. Kafka's own producer takes 1.4 of the 2 cores and sends batches of"
    " 16 KB: then a MB is 6 ms of the broker and 3 of the store, where the null broker needs 3"
)
_FROM_THE_STORE = (
    "from the start, records beyond the broker's own cache come out of the store: 0.4 ms a MB there and 0.7 in the"
    " broker, where Kafka passes its page cache to the socket and the null broker its own memory (0.3). Reading ahead"
    " bought 3% and was left out. At the tail of Kafka's own producer, with its batches of 16 KB, a MB in and out is"
    " 10 ms of the broker and 4 of the store beside two Java programs, where the null broker needs 4 to 6"
)

TARGETS = (
    Target("produce", "produce 100 B and 1 KB, batched", KAFKA, "at least", 1.0, reason=_TWO_PROCESSES),
    Target("produce", "produce 100 B and 1 KB, batched", NULL_BROKER, "at least", 0.8, reason=_TWO_PROCESSES),
    Target(
        "produce CPU",
        "produce: broker CPU a MB",
        RAW_REDIS,
        "at most",
        2.0,
        reason="the raw writer only sends, to a local socket; a broker has to receive over TCP first, and the null"
        " broker, which does nothing else, is past this bound by itself (table CPU)",
    ),
    Target("consume", "consume from the tail and from the start", KAFKA, "at least", 1.0, reason=_FROM_THE_STORE),
    Target("consume", "consume from the tail and from the start", NULL_BROKER, "at least", 0.8, reason=_FROM_THE_STORE),
    Target("stream", "format stream: 100 B into and out of one partition", RAW_REDIS, "at least", 0.4),
    Target(
        "latency",
        "end-to-end p99 at 5,000 records a second",
        KAFKA,
        "at most",
        0.7,
        reason="p99 swings by a factor of ten between repeats with what else the 2 cores do",
    ),
    Target(
        "small producers",
        "100 producers with linger 0",
        KAFKA,
        "at least",
        1.0,
        reason="each request is 60 to 80 us of one Python thread, which is the core that it has; Kafka spends more CPU"
        " on a request, but on both cores. Requests without a task and a lock of their own were no faster",
    ),
    Target(
        "group",
        "group of 200: form, and re-form after a leave, beyond the configured delay",
        KAFKA,
        "at most",
        0.5,
        reason="600 requests one after the other in one Python thread, 60 to 100 us each, a third of it the kernel's"
        " and none of the rest more than a few percent; Kafka answers on both cores at five times the CPU. In all a"
        " group forms in half Kafka's time: the delay runs from the last join, Kafka's begins anew (table Groups)",
    ),
    Target("start", "start to ready", KAFKA, "at most", 0.2),
    Target("memory", "memory idle and loaded: broker plus store, less the dataset", KAFKA, "at most", 0.4),
    Target("archive", "archive 100 B JSON-like records to a Delta table", SPARK_KAFKA, "at least", 1.5),
    Target("cold", "consume what is in the lake alone", FROM_REDIS, "at least", 0.3),
    Target("first cold byte", "first cold records with 10,000 files, under 300 ms", LIMIT, "at most", 1.0),
    Target(
        "beside cold",
        "p99 of hot records beside four cold consumers",
        ALONE,
        "at most",
        1.5,
        reason="the cold consumers are four more processes that fill the 2 cores: loops that have nothing to do with"
        " the broker disturb its clients more (table Cold). Its own reader of the lake is nicer than the rest",
    ),
)
