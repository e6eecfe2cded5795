"""docs/metrics.md, written from the table."""

from __future__ import annotations

from headrace.metrics.table import METRICS, OTHERS

_HEAD = f"""# Metrics

`headrace serve --http-port 9080` answers `/metrics` with text for Prometheus, of all its nodes
where it has a [console](console.md), else each node on a port of its own:

```yaml
scrape_configs:
  - job_name: headrace
    static_configs:
      - targets: ["127.0.0.1:9080"]
```

Every sample also has the label `node`. Names are stable: a test freezes them.

- Rates, bytes and records count what passed through this node since it started.
- Only its coordinator reports a group. When the group moves, its samples move with it: use `max without (node)`.
- Lag of groups and of the archive, and transactions by state, are counted in the background, every
  `metrics_interval_ms`. Lag in seconds is the age of the oldest record not yet read, or archived. For topics
  of format `stream` records are counted; where that would cost too much, there is no sample.
- At most `metrics_names_max` topics and as many groups have samples of their own; all other topics are one, `{OTHERS}`.
  Partitions have samples with `--metrics-partitions` only.
- On addresses other than loopback `/metrics` needs `metrics_token_file`, and scrapers send its content as a bearer
  token.

`deploy/prometheus/alerts.yml` has alert rules and `deploy/grafana/headrace.json` a dashboard; both are starting points.
`python -m interop prometheus` has Prometheus scrape a node and promtool check metrics, rules and the dashboard's
queries. `python -m interop exporters` compares lag with kafka_exporter, KMinion and Burrow: it is equal for the format
`log`; for `stream` they subtract offsets, which are times there. Burrow reads commits from the topic
`__consumer_offsets`, which is written [while somebody reads it](groups.md#the-topic-__consumer_offsets).

## OpenMetrics

Scrapers that ask for `application/openmetrics-text` (version 1.0.0), as Prometheus does, get it; anybody else gets
Prometheus text 0.0.4. Both have the same samples; in OpenMetrics a counter's family is named without `_total`, there
are no `_created` samples, and with tracing on, the buckets of `headrace_request_seconds` have exemplars: the `trace_id`
of the latest traced request. Prometheus stores those with `--enable-feature=exemplar-storage`.

## Tracing

With the extra `headrace[tracing]` and `--tracing-endpoint http://127.0.0.1:4318/v1/traces`, one produce or fetch in
`tracing_one_in` (100) is sent to an OpenTelemetry collector, by OTLP over HTTP: spans `produce` with an `append` for
each batch, and `fetch` with a `cold read` for each read from the lake. Kafka's requests carry no trace context, so each
is the root of its trace. The exporter's own variables (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_*`) apply.

## Names

| name | kind | labels | meaning |
|---|---|---|---|
"""


def render_docs() -> str:
    rows = (
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels) or '-'} | {one.meaning} |\n"
        for one in METRICS.values()
    )
    return _HEAD + "".join(rows)
