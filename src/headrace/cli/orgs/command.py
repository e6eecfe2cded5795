"""`headrace orgs`: create, list, describe, change and delete organisations."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.cluster_option import cluster_options
from headrace.cli.output import number, print_facts, print_json, print_table, text
from headrace.cli.quantities import parse_size
from headrace.cli.users.command import read_password
from headrace.client import Cluster
from headrace.client.organisations import OrganisationAdmin
from headrace.client.users import DEFAULT_ITERATIONS, NUMBERS, credential
from headrace.wire.private.describe_organisations import DescribedOrganisation

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
LIMITS = ("topics", "partitions", "bytes_stored", "connections", "producer_byte_rate", "consumer_byte_rate")


def read_limits(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Parses `name=value` pairs; bytes may be written as `10GiB`, and `none` removes a limit."""
    limits = {}
    for pair in given:
        name, _, value = pair.partition("=")
        size = -1 if value == "none" else parse_size(value)
        if name not in LIMITS or size is None:
            raise click.BadParameter(f"{pair!r} is not NAME=NUMBER, with a name of {', '.join(LIMITS)}")
        limits[name] = size
    return limits


limit_option = click.option(
    "-l",
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    callback=read_limits,
    help=f"A limit: {', '.join(LIMITS)}. May be repeated; NAME=none removes it.",
)


@click.group()
def orgs() -> None:
    """Create, list, describe, change and delete organisations."""


@orgs.command()
@click.argument("name")
@limit_option
@click.option("--admin", metavar="USER", help="Super user to create, who can then create other users.")
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="File with the password of --admin; - is standard input.  [default: asked for]",
)
@cluster_options
def create(cluster: Cluster, name: str, limits: dict[str, int], admin: str | None, password_file: Path | None) -> None:
    """Create an organisation. Its users log in as NAME/USER.

    \b
    Examples:
      headrace orgs create acme --admin alice
      headrace orgs create acme -l topics=100 -l bytes_stored=10GiB
    """
    administrators = []
    if admin is not None:
        password = read_password(password_file)
        administrators = [credential(admin, password, one, DEFAULT_ITERATIONS) for one in NUMBERS]
    OrganisationAdmin(cluster).put(name, limits, create=True, administrators=administrators)
    click.echo(f"created {name}" + (f"; {admin} logs in as {name}/{admin}" if admin else ""))


@orgs.command()
@click.argument("name")
@limit_option
@cluster_options
def alter(cluster: Cluster, name: str, limits: dict[str, int]) -> None:
    """Change the limits of an organisation.

    \b
    Example:
      headrace orgs alter acme -l topics=200 -l connections=none
    """
    if not limits:
        raise click.UsageError("nothing to change: add --limit NAME=NUMBER")
    OrganisationAdmin(cluster).put(name, limits, create=False)
    click.echo(f"changed {name}")


@orgs.command("list")
@json_option
@cluster_options
def list_orgs(cluster: Cluster, as_json: bool) -> None:
    """List organisations.

    \b
    Example:
      headrace orgs list
    """
    found = OrganisationAdmin(cluster).find()
    if as_json:
        print_json([_facts(one) for one in found])
        return
    columns = [text("NAME"), number("TOPICS"), number("PARTITIONS"), number("USERS"), number("ACLS")]
    print_table(columns, [[one.name, one.topics, one.partitions, one.users, one.acls] for one in found])


@orgs.command()
@click.argument("name")
@json_option
@cluster_options
def describe(cluster: Cluster, name: str, as_json: bool) -> None:
    """Show the usage and limits of an organisation.

    \b
    Example:
      headrace orgs describe acme
    """
    [found] = OrganisationAdmin(cluster).find([name])
    if as_json:
        print_json(_facts(found))
        return
    limits = {limit.key: str(limit.value) for limit in found.limits}
    facts = [("topics", found.topics), ("partitions", found.partitions), ("users", found.users), ("acls", found.acls)]
    print_facts(found.name, [*facts, *((f"limit of {key}", limits.get(key)) for key in LIMITS)])


@orgs.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
def delete(cluster: Cluster, name: str, yes: bool) -> None:
    """Delete an organisation with its users, ACLs and quotas. It must have no topics and no groups.

    \b
    Example:
      headrace orgs delete acme
    """
    if not yes:
        click.confirm(f"Delete {name} with its users, ACLs and quotas?", abort=True)
    OrganisationAdmin(cluster).delete(name)
    click.echo(f"deleted {name}")


def _facts(one: DescribedOrganisation) -> dict[str, object]:
    return {
        "name": one.name,
        "topics": one.topics,
        "partitions": one.partitions,
        "users": one.users,
        "acls": one.acls,
        "limits": {limit.key: limit.value for limit in one.limits},
    }
