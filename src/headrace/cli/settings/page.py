"""Renders docs/settings.md from the table."""

from headrace.cli.settings.table import SETTINGS

_DOCS_HEAD = """\
# Settings

Each setting has a default. A TOML file (`--config FILE`) overrides it, an environment variable overrides the file, and
a flag overrides everything. `headrace config` shows every value in force and where it came from. An unknown name is an
error, both in the file and in variables that begin with `HEADRACE_`; an empty variable counts as unset.

Sizes are bytes or `64KiB`, `64MiB`, `1.5GiB`, `10MB`; times are milliseconds or `500ms`, `10s`, `10m`, `1h`, `7d`.
The setting `data_dir` is `data_dir = "data"` in the file, `HEADRACE_DATA_DIR` in the environment and `--data-dir` as a
flag. A switch such as `auto_create_topics` has the flags `--auto-create-topics` and `--no-auto-create-topics`.

`make run` passes `--host`, `--port` and `--data-dir` itself: set them with `make run HOST=... PORT=... DATA=...`,
`--nodes` with `NODES=...` and everything else with `ARGS='--durability always'`.

This page is generated from `src/headrace/cli/settings/table.py` by `make docs`.
"""


def render_docs() -> str:
    """The whole page."""
    lines = [_DOCS_HEAD.rstrip()]
    section = ""
    for setting in SETTINGS.values():
        if setting.section != section:
            section = setting.section
            lines += ["", f"## {section}", "", "| setting | default | what it does |", "|---|---|---|"]
        default = f"`{setting.show(setting.default)}`" if setting.show(setting.default) else "empty"
        choices = f" One of {', '.join(f'`{c}`' for c in setting.choices)}." if setting.choices else ""
        description = setting.description.replace("|", "\\|")
        lines.append(f"| `{setting.name}` | {default} | {description}{choices} |")
    return "\n".join(lines) + "\n"
