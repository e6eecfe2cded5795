"""The `headrace` command. Each subcommand is its own module, imported on demand."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module

import click

from headrace import __version__

COMMANDS = {
    "serve": "Run a broker until SIGTERM.",
    "topics": "Create, list, describe, alter and delete topics.",
    "produce": "Send records to a topic.",
    "consume": "Read the records of a topic.",
    "groups": "List, describe, reset and delete consumer groups.",
    "acls": "Add, list and remove ACLs; check a user's access.",
    "orgs": "Create, list, describe, change and delete organisations.",
    "transactions": "List, describe and abort transactions.",
    "users": "Create, list and delete users, and change their passwords.",
    "console": "Show a Kafka cluster in the browser.",
    "lake": "Archive topics into Delta tables; show and verify them.",
    "cluster": "Try Headrace on a temporary Valkey cluster.",
    "config": "Show every setting and where its value comes from.",
    "doctor": "Check this machine, Redis and a running broker.",
}


_MODULES = {
    "serve": "serve.command",
    "topics": "topics.command",
    "produce": "records.produce",
    "consume": "records.consume",
    "groups": "groups.command",
    "acls": "acls.command",
    "orgs": "orgs.command",
    "transactions": "transactions.command",
    "users": "users.command",
    "console": "console.command",
    "lake": "lake.command",
    "cluster": "cluster.command",
    "config": "settings.config",
    "doctor": "doctor.command",
}


def load_command(name: str) -> click.Command:
    """Imports a command."""
    command: click.Command = getattr(import_module(f"headrace.cli.{_MODULES[name]}"), name)
    return command


class _LazyGroup(click.Group):
    """Imports a command when it runs, so that no command pays for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return load_command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if near := get_close_matches(args[0], COMMANDS, n=1):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output closed it, as `head` does. Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """A Kafka-protocol broker whose log lives in Redis Streams.

    \b
    Examples:
      headrace serve                          a broker on 127.0.0.1:9092
      headrace topics create orders -p 3      a topic
      headrace produce orders hello world     two records
      headrace consume orders --follow        read them, and new ones
      headrace doctor                         check this machine
    """
