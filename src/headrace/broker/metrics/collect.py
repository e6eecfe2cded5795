"""Collects the samples of a node on request, from state that exists anyway.

Labels that clients can multiply, topics and groups, are bounded: beyond the limit all others share one sample.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from headrace.broker.access import Access
from headrace.metrics.table import OTHERS, STORE_EVENTS
from headrace.metrics.text import Sample
from headrace.security.acls import Operation
from headrace.security.caller import system_caller
from headrace.store.partition.base import Partition

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.network.server import Server

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TOPIC_COUNTERS: Final = {
    "headrace_topic_bytes_in_total": "bytes_in",
    "headrace_topic_records_in_total": "records_in",
    "headrace_topic_bytes_out_total": "bytes_out",
}
_TIERED_GAUGES: Final[dict[str, Callable[[Partition], int]]] = {
    "headrace_tiered_cold_records": lambda one: one.local_start - one.log_start,
    "headrace_tiered_troubles": lambda one: int(bool(one.trouble)),
}
_COMPACTION_COUNTERS: Final[dict[str, Callable[[Partition], int]]] = {
    "headrace_compactions_total": lambda one: one.compactions.passes,
    "headrace_compaction_removed_bytes_total": lambda one: one.compactions.removed_bytes,
    "headrace_compaction_removed_records_total": lambda one: one.compactions.removed_records,
    "headrace_compaction_waiting": lambda one: int(one.compactions.waits_for_memory),
}
_PARTITION_GAUGES: Final[dict[str, Callable[[Partition], int]]] = {
    "headrace_partition_log_start_offset": lambda one: one.log_start,
    "headrace_partition_local_start_offset": lambda one: one.local_start,
    "headrace_partition_end_offset": lambda one: one.end,
    "headrace_partition_size_bytes": lambda one: one.index.bytes_since(one.local_start),
}

Labelled = dict[tuple[str, str], float]
"""Organisation and name -> value."""


class Collector:
    """Reads a node's numbers. The server is there later than the broker."""

    def __init__(self, broker: Broker, server: Server) -> None:
        self._broker = broker
        self._server = server
        self._started_s = broker.store.clock.wall_ms() / 1000
        self._build = (version("headrace"), platform.python_version())
        self._named = NamedTopics()

    def samples(self) -> Iterator[Sample]:
        """All of them, those of one metric together."""
        yield from self._process()
        yield from self._server.requests.samples()
        yield from self._network()
        yield from self._topics()
        yield from self._store()
        yield from self._nodes()
        yield from self._transactions()
        yield from self._broker.metric_rounds.samples()

    def _process(self) -> Iterator[Sample]:
        yield Sample("headrace_build_info", self._build, 1)
        yield Sample("process_start_time_seconds", (), self._started_s)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield Sample("process_cpu_seconds_total", (), round(usage.ru_utime + usage.ru_stime, 3))
        if os.path.exists("/proc/self/statm"):
            with open("/proc/self/statm") as statm:
                yield Sample("process_resident_memory_bytes", (), int(statm.read().split()[1]) * _PAGE_BYTES)
            yield Sample("process_open_fds", (), len(os.listdir("/proc/self/fd")))

    def _network(self) -> Iterator[Sample]:
        server, broker = self._server, self._broker
        yield Sample("headrace_request_failures_total", (), server.failures)
        yield Sample("headrace_connections", (), len(server.connections))
        yield Sample("headrace_connections_accepted_total", (), server.accepted)
        yield Sample("headrace_connections_refused_total", (), server.refused)
        yield Sample("headrace_request_memory_bytes", (), server.budget.arriving_bytes + server.budget.whole_bytes)
        yield Sample("headrace_request_memory_limit_bytes", (), server.budget.limit_bytes)
        yield Sample("headrace_response_memory_bytes", (), server.answer_room.used_bytes)
        queued = sum(partition.writer.queued for _, partition in self._partitions())
        yield Sample("headrace_append_queue_batches", (), queued)
        yield Sample("headrace_fetch_sessions", (), len(broker.fetch_sessions))
        yield Sample("headrace_event_loop_delay_seconds", (), broker.watchdog.delays)
        yield Sample("headrace_event_loop_long_turns_total", (), broker.watchdog.long_turns)
        yield Sample("headrace_event_loop_pauses_total", (), broker.watchdog.pauses)

    def _accesses(self) -> Iterator[tuple[str, Access]]:
        for organisation in list(self._broker.store.organisations):
            yield organisation, Access(self._broker, system_caller(organisation))

    def _partitions(self) -> Iterator[tuple[str, Partition]]:
        for organisation, access in self._accesses():
            for partition in access.open_partitions():
                yield organisation, partition

    def _topics(self) -> Iterator[Sample]:
        topics = [(organisation, access.topics(Operation.DESCRIBE)) for organisation, access in self._accesses()]
        for organisation, found in topics:
            yield Sample("headrace_topics", (organisation,), len(found))
        for organisation, found in topics:
            yield Sample("headrace_partitions", (organisation,), sum(topic.partitions for topic in found))
        self._named.forget_but({(organisation, one.name) for organisation, found in topics for one in found})
        partitions = list(self._partitions())
        leads = self._broker.store.nodes.leads
        led = sum(leads(partition.topic, partition.number) for _, partition in partitions)
        yield Sample("headrace_partitions_led", (), led)
        most = self._broker.options.metrics_names_max
        for name, attribute in _TOPIC_COUNTERS.items():
            yield from self._named.samples(name, _by_topic(partitions, attrgetter(attribute)), most)
        mine = [(org, one) for org, one in partitions if one.policy.is_tiered and leads(one.topic, one.number)]
        for name, count in _TIERED_GAUGES.items():
            yield from self._named.samples(name, _by_topic(mine, count), most)
        compacted = [(org, one) for org, one in partitions if one.policy.compacts]
        for name, count in _COMPACTION_COUNTERS.items():
            yield from self._named.samples(name, _by_topic(compacted, count), most)
        if self._broker.options.metrics_partitions:
            for name, read in _PARTITION_GAUGES.items():
                for organisation, partition in partitions:
                    labels = organisation, partition.topic.name, str(partition.number)
                    yield Sample(name, labels, read(partition))

    def _store(self) -> Iterator[Sample]:
        store = self._broker.store
        for shard in (shards := store.shards):
            yield Sample("headrace_redis_up", (shard.name,), int(shard.link.is_up))
        for shard in shards:
            for link in shard.links:
                yield Sample("headrace_redis_round_trip_seconds", (shard.name, link.name), link.round_trips)
        for shard in shards:
            for link in shard.links:
                yield Sample("headrace_redis_reconnects_total", (shard.name, link.name), max(link.generation - 1, 0))
        for shard in shards:
            yield Sample("headrace_redis_timelines_total", (shard.name,), shard.link.timeline)
        for shard in shards:
            yield Sample("headrace_redis_memory_bytes", (shard.name,), shard.memory.used_bytes)
        for shard in shards:
            yield Sample("headrace_redis_memory_limit_bytes", (shard.name,), shard.memory.limit_bytes)
        for shard in shards:
            yield Sample("headrace_redis_memory_percent", (shard.name,), shard.memory.percent)
        for shard in shards:
            yield Sample("headrace_redis_full", (shard.name,), int(shard.memory.is_full))
        for event in sorted({*STORE_EVENTS, *store.events}):
            # From 0 on: Prometheus sees no increase in a counter that appears with its first event.
            yield Sample("headrace_store_events_total", (event,), store.events[event])
        yield Sample("headrace_tail_cache_bytes", (), store.tails.size_bytes)
        yield Sample("headrace_tail_cache_limit_bytes", (), store.tails.limit_bytes)
        yield Sample("headrace_tail_cache_hits_total", (), self._broker.cache_hits)
        yield Sample("headrace_tail_cache_misses_total", (), self._broker.cache_misses)
        yield Sample("headrace_cold_reads_total", ("ok",), store.cold_reads.succeeded)
        yield Sample("headrace_cold_reads_total", ("error",), store.cold_reads.failed)
        yield Sample("headrace_cold_read_seconds", (), store.cold_reads.seconds)

    def _nodes(self) -> Iterator[Sample]:
        nodes = self._broker.store.nodes
        yield Sample("headrace_nodes", (), len(nodes.live))
        yield Sample("headrace_lease_valid", (), int(nodes.lease_is_valid))
        yield Sample("headrace_leadership_changes_total", (), nodes.term)

    def _transactions(self) -> Iterator[Sample]:
        finished = self._broker.transactions.finished
        for outcome in ("commit", "abort"):
            yield Sample("headrace_transactions_finished_total", (outcome,), finished[outcome])


def _by_topic(partitions: Iterable[tuple[str, Partition]], count: Callable[[Partition], int]) -> Labelled:
    sums: Labelled = {}
    for organisation, partition in partitions:
        key = organisation, partition.topic.name
        sums[key] = sums.get(key, 0) + count(partition)
    return sums


class NamedTopics:
    """Which topics have samples of their own: a topic that has them keeps them for as long as it is there.

    Otherwise two that change places in a ranking would make counters go down, which Prometheus takes for a restart.
    """

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()

    def forget_but(self, there: Collection[tuple[str, str]]) -> None:
        """Gives up the places of topics that were deleted."""
        self._named.intersection_update(there)

    def samples(self, name: str, values: Labelled, most: int) -> Iterator[Sample]:
        """Topics that have a place, the largest of the others as long as there are places, and the rest as one."""
        unnamed = sorted(values.keys() - self._named, key=lambda key: (-values[key], key))
        self._named.update(unnamed[: max(0, most - len(self._named))])
        rest = [value for key, value in values.items() if key not in self._named]
        yield from (Sample(name, key, value) for key, value in values.items() if key in self._named)
        if rest:
            yield Sample(name, (OTHERS, OTHERS), sum(rest))
