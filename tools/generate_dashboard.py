"""Writes deploy/grafana/headrace.json: a dashboard of the metrics that people look at first. A test compares it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE = Path(__file__).parent.parent / "deploy" / "grafana" / "headrace.json"
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_QUANTILE = 'histogram_quantile({q}, sum by (le, {by}) (rate({name}_bucket{{node=~"$node"}}[$__rate_interval])))'

Panel = tuple[str, str, list[tuple[str, str]]]

PANELS: Final[list[Panel]] = [
    (
        "Records in per second",
        "short",
        [('sum by (topic) (rate(headrace_topic_records_in_total{node=~"$node"}[$__rate_interval]))', "{{topic}}")],
    ),
    (
        "Bytes in per second",
        "Bps",
        [('sum by (topic) (rate(headrace_topic_bytes_in_total{node=~"$node"}[$__rate_interval]))', "{{topic}}")],
    ),
    (
        "Bytes out per second",
        "Bps",
        [('sum by (topic) (rate(headrace_topic_bytes_out_total{node=~"$node"}[$__rate_interval]))', "{{topic}}")],
    ),
    (
        "Lag in records",
        "short",
        [("max without (node) (headrace_group_lag_records)", "{{group}} {{topic}}")],
    ),
    (
        "Lag in seconds",
        "s",
        [("max without (node) (headrace_group_lag_seconds)", "{{group}} {{topic}}")],
    ),
    ("Groups by state", "short", [("sum by (state) (headrace_groups)", "{{state}}")]),
    (
        "Requests per second",
        "reqps",
        [('sum by (api) (rate(headrace_requests_total{node=~"$node"}[$__rate_interval]))', "{{api}}")],
    ),
    (
        "Requests p99",
        "s",
        [(_QUANTILE.format(q=0.99, by="api", name="headrace_request_seconds"), "{{api}}")],
    ),
    (
        "Errors per second",
        "short",
        [
            (
                'sum by (api, error) (rate(headrace_request_errors_total{node=~"$node"}[$__rate_interval]))',
                "{{api}} {{error}}",
            )
        ],
    ),
    (
        "Redis round trip p99",
        "s",
        [(_QUANTILE.format(q=0.99, by="link", name="headrace_redis_round_trip_seconds"), "{{link}}")],
    ),
    ("Redis memory", "percent", [("max by (server) (headrace_redis_memory_percent)", "{{server}}")]),
    (
        "Trouble with the store",
        "short",
        [
            ("sum by (event) (increase(headrace_store_events_total[$__rate_interval]))", "{{event}}"),
            ("sum (increase(headrace_redis_timelines_total[$__rate_interval]))", "another server run"),
        ],
    ),
    (
        "Tail cache hits",
        "percentunit",
        [
            (
                "sum(rate(headrace_tail_cache_hits_total[$__rate_interval])) / "
                "(sum(rate(headrace_tail_cache_hits_total[$__rate_interval])) + "
                "sum(rate(headrace_tail_cache_misses_total[$__rate_interval])))",
                "hits",
            )
        ],
    ),
    (
        "Event loop delay p99",
        "s",
        [(_QUANTILE.format(q=0.99, by="node", name="headrace_event_loop_delay_seconds"), "node {{node}}")],
    ),
    (
        "Nodes",
        "short",
        [
            ('headrace_partitions_led{node=~"$node"}', "partitions led by {{node}}"),
            ('headrace_connections{node=~"$node"}', "connections of {{node}}"),
        ],
    ),
    (
        "CPU",
        "percentunit",
        [('rate(process_cpu_seconds_total{node=~"$node"}[$__rate_interval])', "node {{node}}")],
    ),
    ("Memory", "bytes", [('process_resident_memory_bytes{node=~"$node"}', "node {{node}}")]),
    (
        "Archive lag in records",
        "short",
        [("max without (node) (headrace_archive_lag_records)", "{{topic}}")],
    ),
    (
        "Archive lag in seconds",
        "s",
        [("max without (node) (headrace_archive_lag_seconds)", "{{topic}}")],
    ),
    (
        "Transactions per second",
        "short",
        [
            (
                'sum by (outcome) (rate(headrace_transactions_finished_total{node=~"$node"}[$__rate_interval]))',
                "{{outcome}}",
            ),
            ('sum (headrace_transactions{node=~"$node", state="Ongoing"})', "open now"),
        ],
    ),
    (
        "Bytes removed by compaction per second",
        "Bps",
        [
            (
                'sum by (topic) (rate(headrace_compaction_removed_bytes_total{node=~"$node"}[$__rate_interval]))',
                "{{topic}}",
            )
        ],
    ),
    (
        "Cold reads p99",
        "s",
        [(_QUANTILE.format(q=0.99, by="node", name="headrace_cold_read_seconds"), "node {{node}}")],
    ),
    (
        "Records only in the lake",
        "short",
        [("sum by (topic) (headrace_tiered_cold_records)", "{{topic}}")],
    ),
]


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "title": "Headrace",
        "uid": "headrace",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "tags": ["headrace", "kafka"],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "node",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": "label_values(headrace_build_info, node)",
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                    "refresh": 2,
                },
            ]
        },
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    per_row = _COLUMNS // _WIDTH
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": number % per_row * _WIDTH, "y": number // per_row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
            for at, (expression, legend) in enumerate(queries)
        ],
    }


def render() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(render())
