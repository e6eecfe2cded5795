"""`headrace users`: create, list and delete users, and change their passwords.

Passwords are prompted for, or read from a file or standard input. As an argument they would be visible to everyone on
the machine.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.cluster_option import cluster_options
from headrace.cli.output import print_json, print_table, text, word
from headrace.client import Cluster
from headrace.client.users import DEFAULT_ITERATIONS, NUMBERS, UserAdmin

Result = TypeVar("Result")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


@click.group()
def users() -> None:
    """Create, list and delete users, and change their passwords."""


def _password_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds the password options; the command is called with `password`."""

    @click.option(
        "--password-file",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        help="File with the password; - is standard input.  [default: asked for]",
    )
    @click.option(
        "--mechanism",
        "mechanisms",
        multiple=True,
        type=click.Choice(list(NUMBERS), case_sensitive=False),
        help="SCRAM mechanism. May be repeated.  [default: both]",
    )
    @click.option(
        "--iterations",
        metavar="N",
        type=click.IntRange(4_096, 16_384),
        default=DEFAULT_ITERATIONS,
        help=f"Hash iterations.  [default {DEFAULT_ITERATIONS}]",
    )
    @functools.wraps(command)
    def with_password(*args: Any, password_file: Path | None, mechanisms: tuple[str, ...], **given: Any) -> Result:
        return command(*args, password=read_password(password_file), mechanisms=list(mechanisms or NUMBERS), **given)

    return with_password


def read_password(file: Path | None) -> str:
    """From a file, standard input, or a prompt."""
    if file is None:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask for the password; use --password-file FILE, or -")
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        try:
            password = (sys.stdin.read() if str(file) == "-" else file.read_text()).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise click.UsageError(f"--password-file {file}: {reason}") from None
    if not password:
        raise click.UsageError("the password is empty")
    return password


@users.command()
@click.argument("name")
@_password_options
@cluster_options
def create(cluster: Cluster, name: str, password: str, mechanisms: list[str], iterations: int) -> None:
    """Create a user who logs in with a password, by SCRAM or PLAIN.

    \b
    Examples:
      headrace users create alice
      headrace users create alice --password-file alice.password
      pwgen 24 1 | headrace users create alice --password-file -
    """
    found = UserAdmin(cluster)
    if found.find(name) is not None:
        raise click.ClickException(f"user {name} already exists; `headrace users password {name}` changes the password")
    found.set_password(name, password, mechanisms, iterations)
    click.echo(f"created {name}")


@users.command("password")
@click.argument("name")
@_password_options
@cluster_options
def set_password(cluster: Cluster, name: str, password: str, mechanisms: list[str], iterations: int) -> None:
    """Change a user's password.

    Open connections stay; new ones need the new password.

    \b
    Examples:
      headrace users password alice
      headrace users password alice --password-file alice.password
    """
    found = UserAdmin(cluster)
    if found.find(name) is None:
        raise click.ClickException(f"there is no user {name}; `headrace users create {name}` creates it")
    found.set_password(name, password, mechanisms, iterations)
    click.echo(f"changed the password of {name}")


@users.command("list")
@json_option
@cluster_options
def list_users(cluster: Cluster, as_json: bool) -> None:
    """List users and how they can log in.

    \b
    Examples:
      headrace users list
      headrace users list --json
    """
    found = UserAdmin(cluster).list_users()
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no users")
    else:
        rows = [(u.name, ", ".join(f"{m} ({n:,} iterations)" for m, n in u.mechanisms.items())) for u in found]
        print_table([word("USER"), text("MECHANISMS")], rows)


@users.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cluster_options
def delete(cluster: Cluster, names: tuple[str, ...]) -> None:
    """Delete users, who can then no longer log in.

    Open connections stay until they have to log in again (connections_max_reauth_ms).

    \b
    Examples:
      headrace users delete alice
    """
    found = UserAdmin(cluster)
    for name in names:
        user = found.find(name)
        if user is None:
            raise click.ClickException(f"there is no user {name}")
        found.delete(user)
        click.echo(f"deleted {name}")
