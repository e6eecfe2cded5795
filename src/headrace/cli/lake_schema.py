"""`headrace lake schema` and `headrace lake parse`: what records are, and their fields as columns of a typed table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.cluster_option import cluster_options
from headrace.cli.lake_option import lake_option, place_option
from headrace.cli.output import count_of, number, print_json, print_table, text
from headrace.cli.topics import json_option
from headrace.client import Cluster

if TYPE_CHECKING:
    from headrace.lake.place import Place
    from headrace.lake.typed_definition import Definition


@click.group()
def schema() -> None:
    """Give topics a schema: their records become rows of typed tables."""


_FILE = click.Path(path_type=Path)
_topic_option = click.option("--topic", metavar="TOPIC", required=True, help="The topic, by name.")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from None


def _avro_file(given: str) -> tuple[str, bytes]:
    """The id, if there is one, and the schema's text."""
    number, equals, name = given.partition("=")
    return (number, _content(Path(name))) if equals and number.isdecimal() else ("", _content(Path(given)))


@schema.command("set")
@place_option
@_topic_option
@click.option("--json-schema", "json_file", metavar="FILE", type=_FILE, help="A JSON Schema.")
@click.option(
    "--avro", "avro_files", metavar="[ID=]FILE", multiple=True,
    help="An Avro schema; with ids, one for each that records carry, the newest last.",
)  # fmt: skip
@click.option("--example", "example_file", metavar="FILE", type=_FILE, help="Examples: JSON, one a line or a list.")
@click.option("--infer", "is_inferred", is_flag=True, help="Take the topic's own records as examples.")
@click.option("--rebuild", is_flag=True, help="Make the typed table anew, from the raw one.")
@cluster_options
def set_schema(
    cluster: Cluster,
    root: Place,
    topic: str,
    json_file: Path | None,
    avro_files: tuple[str, ...],
    example_file: Path | None,
    is_inferred: bool,
    rebuild: bool,
) -> None:
    """Give a topic a schema, or a newer one.

    From then on the archive also parses the topic's records: fields become columns of the table TOPIC_.typed, and
    records that do not parse go to TOPIC_.rejects with the reason. A schema by example grows with new fields.

    \b
    Examples:
      headrace lake schema set --lake lake --topic orders --json-schema o.json
      headrace lake schema set --lake lake --topic orders --infer
      headrace lake schema set --lake lake --topic orders --avro orders.avsc
    """
    from headrace.lake.typed_setting import (
        examples_in,
        from_avro,
        from_examples,
        from_json_schema,
        identity_of,
        sample,
        set_definition,
    )

    if sum(map(bool, (json_file, avro_files, example_file, is_inferred))) != 1:
        raise click.UsageError("say what the records are: one of --json-schema, --avro, --example and --infer")
    identity = identity_of(root, topic, cluster)
    definition: Definition
    if json_file is not None:
        definition, not_checked = from_json_schema(_content(json_file), str(json_file))
        for keyword in not_checked:
            click.echo(f"not checked: {keyword}", err=True)
    elif avro_files:
        definition = from_avro([_avro_file(given) for given in avro_files])
    else:
        given = examples_in(_content(example_file)) if example_file else sample(root, identity, cluster)
        definition, bad = from_examples(given)
        if bad:
            click.echo(f"{count_of(bad, 'example')} passed over: no JSON", err=True)
    typed = set_definition(root, identity, definition, rebuild=rebuild)
    columns = [(field.name, str(field.type)) for field in definition.columns()]
    print_table([text("COLUMN"), text("TYPE")], columns)
    click.echo(f"\n{typed.place} gets rows with the next archive, or with `headrace lake parse`")


@schema.command()
@place_option
@_topic_option
@cluster_options
def show(cluster: Cluster, root: Place, topic: str) -> None:
    """Print the schema of a topic, as a file that `set` takes.

    \b
    Examples:
      headrace lake schema show --lake lake --topic orders > orders.json
    """
    from headrace.lake.typed_setting import definition_of, identity_of

    definition = definition_of(root, identity_of(root, topic, cluster))
    print_json([*definition.schema.values()][-1] if definition.format == "avro" else definition.schema)


@schema.command()
@place_option
@_topic_option
@cluster_options
def unset(cluster: Cluster, root: Place, topic: str) -> None:
    """Stop parsing a topic. Its typed table stays as it is.

    \b
    Examples:
      headrace lake schema unset --lake lake --topic orders
    """
    from headrace.lake.typed_setting import identity_of, unset_definition

    typed = unset_definition(root, identity_of(root, topic, cluster))
    click.echo(f"{typed.place} stays as it is and gets no more rows")


@schema.command("list")
@lake_option
@json_option
def list_schemas(root: Place, topics: tuple[str, ...], as_json: bool) -> None:
    """List the topics with a schema, and how far their typed tables are.

    \b
    Examples:
      headrace lake schema list --lake lake
    """
    from headrace.lake.catalogue import tables_in
    from headrace.lake.typed_setting import schema_info

    found = [info for raw in tables_in(root, topics) if (info := schema_info(root, raw)) is not None]
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"no topic in {root} has a schema")
    else:
        headings = [text("TOPIC"), text("FORMAT"), number("COLUMNS"), number("ROWS"), number("REJECTS"), number("LAG")]
        print_table(headings, [(i.topic, i.format, i.columns, i.rows, i.rejected, i.lag) for i in found])


@click.command()
@lake_option
@json_option
def parse(root: Place, topics: tuple[str, ...], as_json: bool) -> None:
    """Bring typed tables up to their raw ones, without Spark and without a broker.

    The archive does the same as it goes; this is for tables that were archived before they had a schema.

    \b
    Examples:
      headrace lake parse --lake lake
      headrace lake parse --lake lake --topics orders
    """
    from headrace.lake.catalogue import tables_in
    from headrace.lake.typed import TypedRound, Typing

    typing = Typing(root, say=lambda sentence: click.echo(sentence, err=True))
    total = TypedRound()
    for raw in tables_in(root, topics):
        done = typing.catch_up(raw)
        total.rows, total.rejected, total.lag = (
            total.rows + done.rows,
            total.rejected + done.rejected,
            total.lag + done.lag,
        )
    if as_json:
        print_json(total)
    else:
        click.echo(f"{count_of(total.rows, 'row')} parsed, {total.rejected:,} rejected")
    if typing.troubles or total.lag:
        raise click.exceptions.Exit(1)
