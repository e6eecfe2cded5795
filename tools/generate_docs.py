"""Writes the pages that are made from code: settings, topic configs, commands. Tests fail while one is out of date."""

from __future__ import annotations

from pathlib import Path

from headrace.broker import topic_config_table
from headrace.cli import command_page, settings

DOCS = Path(__file__).parent.parent / "docs"

PAGES = {
    "settings.md": settings.render_docs,
    "topic-configs.md": topic_config_table.render_docs,
    "cli.md": command_page.render,
}

if __name__ == "__main__":
    for name, render in PAGES.items():
        (DOCS / name).write_text(render())
