"""Writes the generated pages: settings, topic configs, commands, metrics, rights. Tests fail while one is stale."""

from __future__ import annotations

from pathlib import Path

from headrace.broker.configs import topic_page
from headrace.broker.rights import page as rights_page
from headrace.cli import command_page
from headrace.cli.settings import page as settings
from headrace.metrics import page as metrics

DOCS = Path(__file__).parent.parent / "docs"

PAGES = {
    "settings.md": settings.render_docs,
    "topic-configs.md": topic_page.render_docs,
    "cli.md": command_page.render,
    "metrics.md": metrics.render_docs,
    "rights.md": rights_page.render,
}

if __name__ == "__main__":
    for name, render in PAGES.items():
        (DOCS / name).write_text(render())
