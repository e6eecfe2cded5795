"""`headrace config`: every setting, its value in force, and where that came from."""

from __future__ import annotations

import click

from headrace.cli.output import print_json, print_table, text, word
from headrace.cli.settings.layers import DEFAULT, Loaded
from headrace.cli.settings.options import setting_options
from headrace.cli.settings.table import SETTINGS


@click.command(
    epilog="Every setting of `headrace serve` is also a flag here, to see its effect; docs/settings.md lists them."
)
@click.option("--changed", is_flag=True, help="Only settings that differ from their default.")
@click.option("--describe", is_flag=True, help="Also show what each setting does.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@setting_options(*SETTINGS, hidden=True)
def config(loaded: Loaded, changed: bool, describe: bool, as_json: bool) -> None:
    """Show every setting with its value and source: a flag, the environment, a file or the default.

    Passwords are not shown.

    \b
    Examples:
      headrace config
      headrace config --changed --config headrace.toml
      HEADRACE_PORT=9192 headrace config --json
    """
    rows = [row for row in loaded.rows() if not changed or row.source != DEFAULT]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("every setting has its default")
    elif describe:
        columns = [word("SETTING"), text("VALUE"), text("FROM"), text("WHAT IT DOES")]
        print_table(columns, [(row.name, row.value, row.source, row.description) for row in rows])
    else:
        print_table([word("SETTING"), text("VALUE"), text("FROM")], [(r.name, r.value, r.source) for r in rows])
