"""The `headrace` command. Each subcommand is a module of its own, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

from headrace import __version__

COMMANDS = {
    "serve": "Serve a broker until SIGTERM.",
}


class _LazyGroup(click.Group):
    """Imports a command when it runs, so that none pays for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"headrace.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """A Kafka-protocol broker whose log lives in Redis Streams."""
