"""`headrace transactions`: list, describe and abort transactions."""

from __future__ import annotations

import click
from msgspec import Struct

from headrace.cli.cluster_option import cluster_options
from headrace.cli.output import print_facts, print_json, print_table, text, word
from headrace.cli.transactions.view import age, show_open
from headrace.cli.unknown import Reason, Unknown, impatient, is_away, note_nodes
from headrace.client import Cluster, Transactions
from headrace.client.transactions import OpenTransaction
from headrace.wire.errors import KafkaError

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


class TransactionView(Struct, frozen=True):
    """A transactional id."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: dict[str, list[int]]
    open: list[OpenTransaction]


class UnknownTransaction(Reason, frozen=True):
    """A transactional id of which nothing is known now."""

    transactional_id: str


@click.group()
def transactions() -> None:
    """List, describe and abort transactions."""


@transactions.command("list")
@click.option("--state", "states", multiple=True, help="Only ids in this state, such as Ongoing. May be repeated.")
@json_option
@cluster_options
@impatient
def list_transactions(cluster: Cluster, states: tuple[str, ...], as_json: bool) -> None:
    """List transactional ids with their states.

    \b
    Examples:
      headrace transactions list
      headrace transactions list --state Ongoing --json
    """
    wanted = {state.lower() for state in states}
    unknown = Unknown()
    known, missing = Transactions(cluster).known()
    found = [one for one in known if not wanted or one.state.lower() in wanted]
    troubles = note_nodes(unknown, missing, "transactional ids", is_any=bool(known))
    if as_json:
        print_json([*found, *troubles])
    elif not found and not troubles:
        click.echo("no transactional ids")
    elif found:
        columns = [text("TRANSACTIONAL ID"), word("STATE"), word("PRODUCER ID")]
        print_table(columns, [(one.transactional_id, one.state, str(one.producer_id)) for one in found])
    unknown.end()


@transactions.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@json_option
@cluster_options
@impatient
def describe(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Show transactional ids: state, producer, and open transactions per partition.

    \b
    Examples:
      headrace transactions describe mover
      headrace transactions describe mover --json
    """
    unknown = Unknown()
    views: list[TransactionView] = []
    troubles: list[UnknownTransaction] = []
    for name in names:
        try:
            views.append(_view(cluster, name))
        except KafkaError as error:
            if not is_away(error):
                raise
            trouble = unknown.note(name, error)
            troubles.append(UnknownTransaction(trouble.error, trouble.why, name))
    if as_json:
        print_json([*views, *troubles])
    for at, view in enumerate(() if as_json else views):
        if at:
            click.echo()
        facts = [
            ("state", view.state),
            ("producer id", str(view.producer_id)),
            ("epoch", str(view.producer_epoch)),
            ("timeout", f"{view.timeout_ms} ms"),
            ("started", age(view.started_ms) if view.started_ms is not None else None),
        ]
        print_facts(view.transactional_id, facts)
        if view.open:
            click.echo()
            show_open(view.open)
    unknown.end()


def _view(cluster: Cluster, name: str) -> TransactionView:
    found = Transactions(cluster).described(name)
    partitions = {topic.topic: topic.partitions for topic in found.topics}
    places = [(topic, number) for topic, numbers in partitions.items() for number in numbers]
    opened = Transactions(cluster).opened(places) if places else []
    return TransactionView(
        name,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time if found.transaction_start_time >= 0 else None,
        partitions,
        [one for one in opened if one.producer_id == found.producer_id],
    )


@transactions.command()
@click.argument("name", required=False, metavar="[ID]")
@click.option(
    "--partition", metavar="TOPIC:NUMBER", help="Abort hanging transactions in this partition, whatever their id."
)
@click.option("--producer-id", type=int, help="With --partition: only the transaction of this producer.")
@cluster_options
def abort(cluster: Cluster, name: str | None, partition: str | None, producer_id: int | None) -> None:
    """Abort the open transaction of an id and fence its producer, or abort hanging transactions in a partition.

    \b
    Examples:
      headrace transactions abort mover
      headrace transactions abort --partition orders:2
    """
    if (name is None) == (partition is None):
        raise click.UsageError("give a transactional id, or --partition TOPIC:NUMBER")
    if name is not None:
        known = Transactions(cluster).described(name)
        Transactions(cluster).fence(name, known.transaction_timeout_ms)
        click.echo(f"{name}: no transaction is open, and its producer is fenced")
        return
    topic, _, number = (partition or "").rpartition(":")
    if not topic or not number.isdecimal():
        raise click.UsageError("a partition is TOPIC:NUMBER, such as orders:2")
    opened = [
        one
        for one in Transactions(cluster).opened([(topic, int(number))])
        if producer_id is None or one.producer_id == producer_id
    ]
    if not opened:
        raise click.ClickException(f"no transaction is open in {partition}")
    for one in opened:
        Transactions(cluster).abort(one)
        click.echo(
            f"{topic}-{number}: aborted the transaction of producer {one.producer_id}, "
            f"open since offset {one.first_offset}"
        )
