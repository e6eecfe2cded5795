"""Renders docs/topic-configs.md from the table of topic configs (`make docs`)."""

from __future__ import annotations

from headrace.broker.configs.broker_table import OPTION_OF
from headrace.store.topic_configs.table import TOPIC_CONFIGS, TopicConfig

_DOCS_HEAD = """\
# Topic configs

Set at creation, or later with AlterConfigs and IncrementalAlterConfigs (`headrace topics create --config`,
`headrace topics alter`, `kafka-configs`). Values that Kafka rejects are rejected here with the same message. Defaults
follow the broker's configs, set at start or [at run time](behaviour.md#configs-that-change-while-brokers-run). A name
that Kafka 4 does not know is an error.

This page is generated from `src/headrace/store/topic_configs/table.py` by `make docs`.
"""
_SECTIONS = (
    (True, "Configs that have an effect", "what it does"),
    (False, "Configs that are accepted but have no effect", "what it does in Kafka, and why not here"),
)


def render_docs() -> str:
    """docs/topic-configs.md, from the table."""
    lines = [_DOCS_HEAD.rstrip()]
    for has_effect, title, column in _SECTIONS:
        lines += ["", f"## {title}", "", f"| config | type | default | values | {column} |", "|---|---|---|---|---|"]
        lines += [_docs_row(row) for row in TOPIC_CONFIGS.values() if row.has_effect is has_effect]
    return "\n".join(lines) + "\n"


def _docs_row(row: TopicConfig) -> str:
    default = f"`{row.default}`" if row.default else "empty"
    if setting := OPTION_OF.get(row.synonym):
        default += f" (setting `{setting}`)"
    values = "" if row.is_read_only else row.valid_values
    return f"| `{row.name}` | {row.type.name.lower()} | {default} | {values} | {row.meaning} |"
