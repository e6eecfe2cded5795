"""The dashboard and the alert rules ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import yaml

from headrace.metrics.table import METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\b(?:headrace|process)_[a-z_]+\b")
MATCHED = re.compile(r"(\w+)\{([^}]*)\}")


def expressions() -> Iterator[str]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert set(rule["annotations"]) == {"summary", "description"}
            yield rule["expr"]
    dashboard = json.loads((DEPLOY / "grafana" / "headrace.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def metric_of(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name) if name not in METRICS else name


def test_every_metric_and_label_is_there() -> None:
    found = list(expressions())
    assert len(found) > 20
    for expression in found:
        names = NAME.findall(expression)
        assert names, expression
        assert not {metric_of(name) for name in names} - METRICS.keys(), expression
        for name, matchers in MATCHED.findall(expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert labels <= {"node", "le", *METRICS[metric_of(name)].labels}, expression


def test_the_dashboard_is_as_its_tool_writes_it() -> None:
    tool = runpy.run_path(str(DEPLOY.parent / "tools" / "generate_dashboard.py"))
    assert tool["FILE"].read_text() == tool["render"](), "run: make docs"
