"""Every metric: its name, kind, labels and meaning. Dashboards and alerts rely on the names, so a test freezes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class MetricKind(StrEnum):
    """As the text form names them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One row of the table."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

_ROWS: Final = (
    # the process
    Metric("headrace_build_info", _G, ("version", "python"), "Always 1; the labels have the versions."),
    Metric("process_start_time_seconds", _G, (), "When the node started, in seconds since 1970."),
    Metric("process_cpu_seconds_total", _C, (), "CPU time of the node's process."),
    Metric("process_resident_memory_bytes", _G, (), "Memory of the node's process."),
    Metric("process_open_fds", _G, (), "Open file descriptors of the node's process."),
    # requests
    Metric("headrace_requests_total", _C, ("api",), "Requests answered."),
    Metric("headrace_request_errors_total", _C, ("api", "error"), "Errors in responses, by Kafka's names."),
    Metric(
        "headrace_request_seconds",
        _H,
        ("api",),
        "Time from a complete request to its response, including the wait of long polls.",
    ),
    Metric(
        "headrace_request_failures_total", _C, (), "Requests that failed because of a bug; the log has the traceback."
    ),
    Metric("headrace_connections", _G, (), "Open client connections."),
    Metric("headrace_connections_accepted_total", _C, (), "Client connections accepted."),
    Metric("headrace_connections_refused_total", _C, (), "Client connections closed because there were too many."),
    Metric("headrace_request_memory_bytes", _G, (), "Memory of requests in flight."),
    Metric(
        "headrace_request_memory_limit_bytes", _G, (), "Its limit (request_budget_bytes); above it, reading pauses."
    ),
    Metric("headrace_response_memory_bytes", _G, (), "Memory of responses that clients have not read."),
    Metric("headrace_append_queue_batches", _G, (), "Batches waiting to be appended."),
    Metric("headrace_fetch_sessions", _G, (), "Fetch sessions (KIP-227)."),
    # the event loop
    Metric("headrace_event_loop_delay_seconds", _H, (), "Delay of event loop timers, sampled 20 times a second."),
    Metric(
        "headrace_event_loop_long_turns_total", _C, (), "Event loop turns over 100 ms caused by the node's own work."
    ),
    Metric(
        "headrace_event_loop_pauses_total", _C, (), "Event loop turns over 100 ms in which the process was not running."
    ),
    # topics
    Metric("headrace_topics", _G, ("organisation",), "Topics."),
    Metric("headrace_partitions", _G, ("organisation",), "Partitions of all topics."),
    Metric("headrace_partitions_led", _G, (), "Partitions in use that this node leads."),
    Metric("headrace_topic_bytes_in_total", _C, ("organisation", "topic"), "Bytes of record batches appended."),
    Metric("headrace_topic_records_in_total", _C, ("organisation", "topic"), "Records appended."),
    Metric("headrace_topic_bytes_out_total", _C, ("organisation", "topic"), "Bytes of record batches fetched."),
    Metric(
        "headrace_partition_log_start_offset",
        _G,
        ("organisation", "topic", "partition"),
        "First offset of the partition, wherever it is stored (with metrics_partitions).",
    ),
    Metric(
        "headrace_partition_local_start_offset",
        _G,
        ("organisation", "topic", "partition"),
        "First offset in Redis (with metrics_partitions).",
    ),
    Metric(
        "headrace_partition_end_offset",
        _G,
        ("organisation", "topic", "partition"),
        "End of the partition (with metrics_partitions).",
    ),
    Metric(
        "headrace_partition_size_bytes",
        _G,
        ("organisation", "topic", "partition"),
        "Bytes of record batches in Redis (with metrics_partitions).",
    ),
    # Redis
    Metric("headrace_redis_up", _G, ("server",), "Whether the server answers."),
    Metric("headrace_redis_round_trip_seconds", _H, ("server", "link"), "Time from a command to its reply."),
    Metric("headrace_redis_reconnects_total", _C, ("server", "link"), "Reconnections."),
    Metric("headrace_redis_timelines_total", _C, ("server",), "Restarts and failovers seen, which may have lost data."),
    Metric("headrace_redis_memory_bytes", _G, ("server",), "Memory used by the server."),
    Metric("headrace_redis_memory_limit_bytes", _G, ("server",), "Its limit (maxmemory); 0 without one."),
    Metric("headrace_redis_memory_percent", _G, ("server",), "Memory used of maxmemory; 0 without a limit."),
    Metric("headrace_redis_full", _G, ("server",), "Whether produces are refused because the server is nearly full."),
    Metric(
        "headrace_store_events_total",
        _C,
        ("event",),
        "Problems detected: gaps, margins, replaced, restored_entries; work that the store postponed.",
    ),
    Metric("headrace_tail_cache_bytes", _G, (), "Memory of the tail cache."),
    Metric("headrace_tail_cache_limit_bytes", _G, (), "Its limit (tail_cache_bytes)."),
    Metric("headrace_tail_cache_hits_total", _C, (), "Reads of a partition served from memory."),
    Metric("headrace_tail_cache_misses_total", _C, (), "Reads of a partition that went to Redis."),
    Metric("headrace_cold_reads_total", _C, ("outcome",), "Reads from the lake: ok or error."),
    Metric("headrace_cold_read_seconds", _H, (), "Duration of reads from the lake."),
    # nodes
    Metric("headrace_nodes", _G, (), "Live nodes, as this one sees them."),
    Metric("headrace_lease_valid", _G, (), "Whether this node's lease is valid."),
    Metric("headrace_leadership_changes_total", _C, (), "Times another node may have led this node's partitions."),
    # groups
    Metric("headrace_groups", _G, ("organisation", "state"), "Groups that this node coordinates."),
    Metric("headrace_group_members", _G, ("organisation", "group"), "Members of the group."),
    Metric(
        "headrace_group_generation",
        _G,
        ("organisation", "group"),
        "Generation of the group, increased by each rebalance.",
    ),
    Metric("headrace_group_lag_records", _G, ("organisation", "group", "topic"), "Records the group has not read yet."),
    Metric(
        "headrace_group_lag_seconds",
        _G,
        ("organisation", "group", "topic"),
        "Age of the oldest record the group has not read yet.",
    ),
    # transactions
    Metric("headrace_transactions", _G, ("organisation", "state"), "Transactional ids that this node coordinates."),
    Metric("headrace_transactions_finished_total", _C, ("outcome",), "Transactions finished: commit or abort."),
    Metric(
        "headrace_transaction_oldest_seconds",
        _G,
        ("organisation",),
        "Age of the oldest open transaction; 0 if there is none.",
    ),
    # compaction
    Metric("headrace_compactions_total", _C, ("organisation", "topic"), "Compaction passes over partitions."),
    Metric(
        "headrace_compaction_removed_bytes_total",
        _C,
        ("organisation", "topic"),
        "Bytes removed by compaction (format log).",
    ),
    Metric(
        "headrace_compaction_removed_records_total",
        _C,
        ("organisation", "topic"),
        "Records removed by compaction (format stream).",
    ),
    Metric(
        "headrace_compaction_waiting",
        _G,
        ("organisation", "topic"),
        "Partitions whose compaction waits for memory in Redis.",
    ),
    # the lake
    Metric("headrace_tiered_cold_records", _G, ("organisation", "topic"), "Offsets that are only in the lake."),
    Metric("headrace_tiered_troubles", _G, ("organisation", "topic"), "Partitions whose records cannot leave Redis."),
    Metric(
        "headrace_archive_lag_records",
        _G,
        ("organisation", "topic"),
        "Records of a tiered topic not yet in the lake.",
    ),
    Metric(
        "headrace_archive_lag_seconds",
        _G,
        ("organisation", "topic"),
        "Age of the oldest record of a tiered topic not yet in the lake.",
    ),
    Metric(
        "headrace_partition_archive_end_offset",
        _G,
        ("organisation", "topic", "partition"),
        "End offset in the lake: the archive's position (with metrics_partitions).",
    ),
)

METRICS: Final = {row.name: row for row in _ROWS}
STORE_EVENTS: Final = ("gaps", "margins", "postponed", "replaced", "restored_entries")
OTHERS: Final = "_others"
"""The label for all topics or groups beyond the limit."""
