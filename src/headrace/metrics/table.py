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
    Metric("headrace_build_info", _G, ("version", "python"), "Always 1; the labels say what runs."),
    Metric("process_start_time_seconds", _G, (), "When the node started, in seconds since 1970."),
    Metric("process_cpu_seconds_total", _C, (), "CPU time of the node's process."),
    Metric("process_resident_memory_bytes", _G, (), "Memory of the node's process."),
    Metric("process_open_fds", _G, (), "Open file descriptors of the node's process."),
    # requests
    Metric("headrace_requests_total", _C, ("api",), "Requests answered."),
    Metric("headrace_request_errors_total", _C, ("api", "error"), "Error codes in answers, by Kafka's names."),
    Metric("headrace_request_seconds", _H, ("api",), "Time from a whole request to its answer; long polls wait in it."),
    Metric("headrace_request_failures_total", _C, (), "Requests that failed by a bug; the log has the traceback."),
    Metric("headrace_connections", _G, (), "Open client connections."),
    Metric("headrace_connections_accepted_total", _C, (), "Client connections accepted."),
    Metric("headrace_connections_refused_total", _C, (), "Client connections closed because there were too many."),
    Metric("headrace_request_memory_bytes", _G, (), "Memory of requests in flight."),
    Metric(
        "headrace_request_memory_limit_bytes", _G, (), "Its limit (request_budget_bytes); above it, reading pauses."
    ),
    Metric("headrace_response_memory_bytes", _G, (), "Memory of responses that clients have not read."),
    Metric("headrace_append_queue_batches", _G, (), "Batches that wait for their append."),
    Metric("headrace_fetch_sessions", _G, (), "Fetch sessions (KIP-227)."),
    # the event loop
    Metric("headrace_event_loop_delay_seconds", _H, (), "How late a timer of the event loop fires, 20 times a second."),
    Metric("headrace_event_loop_long_turns_total", _C, (), "Turns over 100 ms that the node's own work took."),
    Metric("headrace_event_loop_pauses_total", _C, (), "Turns over 100 ms in which the process did not run."),
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
    Metric("headrace_redis_reconnects_total", _C, ("server", "link"), "Connections made again."),
    Metric(
        "headrace_redis_timelines_total", _C, ("server",), "Times another server run answered: it may have lost data."
    ),
    Metric("headrace_redis_memory_bytes", _G, ("server",), "Memory that the server uses."),
    Metric("headrace_redis_memory_limit_bytes", _G, ("server",), "Its limit (maxmemory); 0 without one."),
    Metric("headrace_redis_memory_percent", _G, ("server",), "Memory used of maxmemory; 0 without a limit."),
    Metric("headrace_redis_full", _G, ("server",), "Whether produces are refused because the server is nearly full."),
    Metric("headrace_store_events_total", _C, ("event",), "Trouble that was noticed: gaps, margins, restored_entries."),
    Metric("headrace_tail_cache_bytes", _G, (), "Memory of the tail cache."),
    Metric("headrace_tail_cache_limit_bytes", _G, (), "Its limit (tail_cache_bytes)."),
    Metric("headrace_tail_cache_hits_total", _C, (), "Reads of a partition served from memory."),
    Metric("headrace_tail_cache_misses_total", _C, (), "Reads of a partition that went to Redis."),
    Metric("headrace_cold_reads_total", _C, ("outcome",), "Reads of records that left Redis: ok or error."),
    Metric("headrace_cold_read_seconds", _H, (), "Time of reads of records that left Redis."),
    # nodes
    Metric("headrace_nodes", _G, (), "Live nodes, as this one sees them."),
    Metric("headrace_lease_valid", _G, (), "Whether this node's lease is valid."),
    Metric("headrace_leadership_changes_total", _C, (), "Times another node may have led this node's partitions."),
    # groups
    Metric("headrace_groups", _G, ("organisation", "state"), "Groups that this node coordinates."),
    Metric("headrace_group_members", _G, ("organisation", "group"), "Members of a group."),
    Metric(
        "headrace_group_generation", _G, ("organisation", "group"), "Generation of a group: each rebalance raises it."
    ),
    Metric(
        "headrace_group_lag_records", _G, ("organisation", "group", "topic"), "Records that a group has yet to read."
    ),
    Metric(
        "headrace_group_lag_seconds",
        _G,
        ("organisation", "group", "topic"),
        "Age of the oldest record that a group has yet to read.",
    ),
    # transactions
    Metric("headrace_transactions", _G, ("organisation", "state"), "Transactional ids that this node coordinates."),
    Metric("headrace_transactions_finished_total", _C, ("outcome",), "Transactions finished: commit or abort."),
    Metric(
        "headrace_transaction_oldest_seconds",
        _G,
        ("organisation",),
        "For how long the oldest open transaction has been open; 0 if none is.",
    ),
    # compaction
    Metric("headrace_compactions_total", _C, ("organisation", "topic"), "Compaction passes over partitions."),
    Metric(
        "headrace_compaction_removed_bytes_total",
        _C,
        ("organisation", "topic"),
        "Bytes that compaction removed (format log).",
    ),
    Metric(
        "headrace_compaction_removed_records_total",
        _C,
        ("organisation", "topic"),
        "Records that compaction removed (format stream).",
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
        "Records of a tiered topic that are not in the lake yet.",
    ),
    Metric(
        "headrace_archive_lag_seconds",
        _G,
        ("organisation", "topic"),
        "Age of the oldest record of a tiered topic that is not in the lake yet.",
    ),
    Metric(
        "headrace_partition_archive_end_offset",
        _G,
        ("organisation", "topic", "partition"),
        "Where the lake ends: the archive's position (with metrics_partitions).",
    ),
)

METRICS: Final = {row.name: row for row in _ROWS}
STORE_EVENTS: Final = ("gaps", "margins", "restored_entries")
OTHERS: Final = "_others"
"""The topic or group that stands for all beyond the limit of labels."""
