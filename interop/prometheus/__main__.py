"""Prometheus scrapes a node; promtool checks its metrics, our rules and the queries of our dashboard.

`make interop` runs it, with a broker of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.broker_process import free_port

from interop.clients import HERE
from interop.lagging import LAG, RECORDS, TOPIC, get, lagging_broker, running, wait_for
from interop.report import Checks, expect

DEPLOY = HERE.parent / "deploy"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m interop.prometheus")
    parser.add_argument("address", nargs="?", help="not used: there is a broker of its own")
    parser.parse_args()
    said = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version (\S+)", said.stdout + said.stderr)
    checks = Checks(found[1] if found else "?")
    with tempfile.TemporaryDirectory(prefix="headrace-prometheus-") as name:
        folder = Path(name)
        collector = f"http://127.0.0.1:{free_port()}/v1/traces"  # nobody: what counts is which requests are traced
        with lagging_broker(folder, tracing_endpoint=collector, tracing_one_in=1) as (_, page):
            rules = str(DEPLOY / "prometheus" / "alerts.yml")
            checks.check("promtool: metrics", lambda: _promtool("check", "metrics", text=get(page)))
            checks.check("promtool: rules", lambda: _promtool("check", "rules", rules))
            checks.check("promtool: tests of rules", lambda: _test_rules(folder / "rules"))
            checks.check("promtool: queries of the dashboard", lambda: _check_dashboard(folder))
            checks.check("Prometheus scrapes the node", lambda: _scrape(folder, page))
    sys.exit(1 if checks.failures else 0)


def _promtool(*arguments: str, text: str | None = None, cwd: Path | None = None) -> None:
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, cwd=cwd, check=False)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)


def _test_rules(folder: Path) -> None:
    folder.mkdir()
    shutil.copy(DEPLOY / "prometheus" / "alerts.yml", folder)
    shutil.copy(Path(__file__).with_name("alerts_test.yml"), folder)
    _promtool("test", "rules", "alerts_test.yml", cwd=folder)


def _check_dashboard(folder: Path) -> None:
    """As recording rules, since those are what promtool parses."""
    dashboard = json.loads((DEPLOY / "grafana" / "headrace.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [expression.replace("$__rate_interval", "1m").replace("$node", ".*") for expression in asked]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    path = folder / "dashboard.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    _promtool("check", "rules", str(path))


def _scrape(folder: Path, page: str) -> None:
    config, own = folder / "prometheus.yml", free_port()
    rules = DEPLOY / "prometheus" / "alerts.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [{"job_name": "headrace", "static_configs": [{"targets": [page.split("/")[2]]}]}],
            }
        )
    )
    options = (f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{own}")
    with running("prometheus", f"--config.file={config}", "--enable-feature=exemplar-storage", *options) as said:

        def asked(query: str) -> list[str]:
            answer = json.loads(get(f"http://127.0.0.1:{own}/api/v1/query?query={query}"))
            return [row["value"][1] for row in answer["data"]["result"]]

        wait_for(lambda: asked('up{job="headrace"}') == ["1"], said)
        expect("lag in Prometheus", asked(f'headrace_group_lag_records{{topic="{TOPIC}"}}'), [str(LAG)])
        expect("records in Prometheus", asked(f'headrace_topic_records_in_total{{topic="{TOPIC}"}}'), [str(RECORDS)])
        expect("families in OpenMetrics", _families(own) & {"headrace_requests"}, {"headrace_requests"})
        wait_for(lambda: len(_trace_ids(own)) > 0, said)


def _families(own: int) -> set[str]:
    """Names of metrics as they were described to Prometheus: without `_total` in OpenMetrics alone."""
    answer = json.loads(get(f"http://127.0.0.1:{own}/api/v1/targets/metadata"))
    return {row["metric"] for row in answer["data"]}


def _trace_ids(own: int) -> set[str]:
    asked = f"query=headrace_request_seconds_bucket&start={time.time() - 600:.0f}&end={time.time() + 60:.0f}"
    answer = json.loads(get(f"http://127.0.0.1:{own}/api/v1/query_exemplars?{asked}"))
    return {exemplar["labels"]["trace_id"] for series in answer["data"] for exemplar in series["exemplars"]}


if __name__ == "__main__":
    main()
