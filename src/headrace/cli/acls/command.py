"""`headrace acls`: add, list and remove ACLs, and check a user's access."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.cluster_option import cluster_options
from headrace.cli.output import print_json, print_table, text
from headrace.client import Cluster
from headrace.client.acls import AclAdmin, AclQuery, AclRow
from headrace.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType

Result = TypeVar("Result")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = [one.name.lower() for one in list(Operation)[2:]]


@click.group()
def acls() -> None:
    """Add, list and remove ACLs; check a user's access."""


def _resource_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds the options that name a resource; the command is called with `resource`, its type and name, or None."""

    @click.option("--topic", metavar="NAME", help="A topic; * means all.")
    @click.option("--group", metavar="NAME", help="A consumer group; * means all.")
    @click.option("--transactional-id", metavar="NAME", help="A transactional id; * means all.")
    @click.option("--cluster", "is_cluster", is_flag=True, help="The cluster.")
    @functools.wraps(command)
    def with_resource(*args: Any, is_cluster: bool, **given: Any) -> Result:
        named = [(kind, given.pop(option)) for option, kind in _KINDS.items()]
        found = [(kind, name) for kind, name in named if name is not None]
        if is_cluster:
            found.append((ResourceType.CLUSTER, CLUSTER_NAME))
        if len(found) > 1:
            raise click.UsageError("name one resource: --topic, --group, --transactional-id or --cluster")
        return command(*args, resource=found[0] if found else None, **given)

    return with_resource


def _needed(resource: tuple[ResourceType, str] | None) -> tuple[ResourceType, str]:
    if resource is None:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    return resource


def _principal(name: str) -> str:
    return name if ":" in name else f"User:{name}"


prefix_option = click.option("--prefix", "is_prefix", is_flag=True, help="The name is a prefix.")
deny_option = click.option("--deny", is_flag=True, help="Deny instead of allow.")
host_option = click.option("--host", default="*", metavar="ADDRESS", help="Address of the client.  [default: any]")


@acls.command()
@click.argument("user")
@click.argument("operations", nargs=-1, required=True, metavar="OPERATION...")
@_resource_options
@prefix_option
@host_option
@deny_option
@cluster_options
def add(
    cluster: Cluster,
    user: str,
    operations: tuple[str, ...],
    resource: tuple[ResourceType, str] | None,
    is_prefix: bool,
    host: str,
    deny: bool,
) -> None:
    """Allow or deny operations on a resource to USER: a name or User:NAME; * means everyone.

    \b
    Examples:
      headrace acls add alice read write --topic orders
      headrace acls add alice read --group readers
      headrace acls add bob all --topic logs- --prefix
      headrace acls add eve write --topic '*' --deny
    """
    kind, name = _needed(resource)
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    rules = [AclRow(kind, name, pattern, _principal(user), host, _operation(one), permission) for one in operations]
    AclAdmin(cluster).add(rules)
    for rule in rules:
        click.echo(f"added {_shown(rule)}")


@acls.command("list")
@_resource_options
@click.option("--user", metavar="NAME", help="Only rules of this user.")
@click.option(
    "--all-that-match", is_flag=True, help="With a resource: also rules for * and for prefixes that match it."
)
@json_option
@cluster_options
def list_acls(
    cluster: Cluster, resource: tuple[ResourceType, str] | None, user: str | None, all_that_match: bool, as_json: bool
) -> None:
    """List ACLs.

    \b
    Examples:
      headrace acls list
      headrace acls list --topic orders --all-that-match
    """
    query = _query(resource, user, PatternType.MATCH if all_that_match and resource else PatternType.ANY)
    found = [Acl(*_typed(row)) for row in AclAdmin(cluster).find(query)]
    if as_json:
        print_json([_as_dict(rule) for rule in found])
    elif not found:
        click.echo("no ACLs")
    else:
        columns = [text("PERMISSION"), text("PRINCIPAL"), text("HOST"), text("OPERATION"), text("RESOURCE")]
        print_table(columns, [_cells(rule) for rule in found])


@acls.command()
@_resource_options
@click.option("--user", metavar="NAME", help="Only rules of this user.")
@click.option("--operation", metavar="NAME", help="Only rules about this operation.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
def remove(
    cluster: Cluster,
    resource: tuple[ResourceType, str] | None,
    user: str | None,
    operation: str | None,
    yes: bool,
) -> None:
    """Remove ACLs.

    \b
    Examples:
      headrace acls remove --user alice --topic orders
      headrace acls remove --user eve --yes
    """
    if resource is None and user is None:
        raise click.UsageError("choose which: --user, or a resource")
    query = _query(resource, user, PatternType.ANY)
    if operation is not None:
        query = query._replace(operation=_operation(operation))
    admin = AclAdmin(cluster)
    found = admin.find(query)
    if not found:
        click.echo("no such ACLs")
        return
    for rule in found:
        click.echo(_shown(rule))
    if not yes:
        click.confirm("Remove them?", abort=True)
    click.echo(f"removed {len(admin.remove(query))}")


@acls.command()
@click.argument("user")
@click.argument("operation")
@_resource_options
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address of the client.  [default: 127.0.0.1]")
@json_option
@cluster_options
def check(
    cluster: Cluster,
    user: str,
    operation: str,
    resource: tuple[ResourceType, str] | None,
    host: str,
    as_json: bool,
) -> None:
    """Show whether USER may do OPERATION on a resource, and which rule decides. The exit code is 1 if not.

    \b
    Examples:
      headrace acls check alice read --topic orders
      headrace acls check alice write --topic orders --host 10.0.0.7
    """
    kind, name = _needed(resource)
    answer = AclAdmin(cluster).explain(_principal(user), host, _operation(operation), kind, name)
    if as_json:
        print_json({"allowed": answer.allowed, "reason": answer.reason, "acl": answer.rule})
    else:
        click.echo(f"{'allowed' if answer.allowed else 'denied'}: {answer.reason}")
        if answer.rule:
            click.echo(f"  {answer.rule}")
    if not answer.allowed:
        click.get_current_context().exit(1)


def _operation(name: str) -> Operation:
    if name.lower() not in _OPERATIONS:
        raise click.UsageError(f"{name!r} is not an operation; use one of {', '.join(_OPERATIONS)}")
    return Operation[name.upper()]


def _query(resource: tuple[ResourceType, str] | None, user: str | None, pattern: PatternType) -> AclQuery:
    kind, name = resource or (ResourceType.ANY, None)
    return AclQuery(kind, name, pattern, None if user is None else _principal(user))


def _typed(row: AclRow) -> tuple[ResourceType, str, PatternType, str, str, Operation, Permission]:
    return (
        ResourceType(row.resource_type),
        row.name,
        PatternType(row.pattern),
        row.principal,
        row.host,
        Operation(row.operation),
        Permission(row.permission),
    )


def _shown(row: AclRow) -> str:
    return str(Acl(*_typed(row)))


def _as_dict(rule: Acl) -> dict[str, str]:
    return {
        "permission": rule.permission.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name,
        "resource_type": rule.resource_type.name,
        "resource_name": rule.name,
        "pattern": rule.pattern.name,
    }


def _cells(rule: Acl) -> list[Any]:
    shown = f"{rule.name}* (prefix)" if rule.pattern is PatternType.PREFIXED else rule.name
    where = rule.resource_type.name.lower().replace("_", " ")
    return [
        rule.permission.name.lower(),
        rule.principal,
        rule.host,
        rule.operation.name.lower(),
        where if rule.resource_type is ResourceType.CLUSTER else f"{where} {shown}",
    ]
