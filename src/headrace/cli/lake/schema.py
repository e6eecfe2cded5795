"""`headrace lake schema` and `headrace lake parse`: schemas of topics, and typed tables with a column per field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.cluster_option import cluster_options
from headrace.cli.lake.option import LeftOut, lake_option, place_option
from headrace.cli.output import count_of, number, print_json, print_table, text
from headrace.cli.topics.command import json_option
from headrace.client import Cluster

if TYPE_CHECKING:
    from headrace.lake.storage.place import Place
    from headrace.schemas.definition import Definition


@click.group()
def schema() -> None:
    """Give topics a schema, to get their records in typed tables."""


_FILE = click.Path(path_type=Path)
_topic_option = click.option("--topic", metavar="TOPIC", required=True, help="The topic, by name.")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from None


def _avro_file(given: str) -> tuple[str, bytes]:
    """Splits the option into the optional id and the schema's text."""
    number, equals, name = given.partition("=")
    return (number, _content(Path(name))) if equals and number.isdecimal() else ("", _content(Path(given)))


@schema.command("set")
@place_option
@_topic_option
@click.option("--json-schema", "json_file", metavar="FILE", type=_FILE, help="A JSON Schema.")
@click.option(
    "--avro", "avro_files", metavar="[ID=]FILE", multiple=True,
    help="An Avro schema; with ids, one per id in the records, newest last.",
)  # fmt: skip
@click.option("--add", is_flag=True, help="Add the Avro schemas to the existing ones, as the newest.")
@click.option("--example", "example_file", metavar="FILE", type=_FILE, help="Examples: JSON, one per line or a list.")
@click.option("--infer", "is_inferred", is_flag=True, help="Use the topic's records as examples.")
@click.option("--rebuild", is_flag=True, help="Rebuild the typed table from the raw one.")
@cluster_options
def set_schema(
    cluster: Cluster,
    root: Place,
    topic: str,
    json_file: Path | None,
    avro_files: tuple[str, ...],
    add: bool,
    example_file: Path | None,
    is_inferred: bool,
    rebuild: bool,
) -> None:
    """Set or replace a topic's schema.

    From then on the archive also parses the topic's records: fields become columns of the table TOPIC_.typed, and
    records that do not parse go to TOPIC_.rejects with the reason. A schema inferred from examples grows with new
    fields.

    \b
    Examples:
      headrace lake schema set --lake lake --topic orders --json-schema o.json
      headrace lake schema set --lake lake --topic orders --infer
      headrace lake schema set --lake lake --topic orders --avro orders.avsc
      headrace lake schema set --lake lake --topic orders --avro 9=v2.avsc --add
    """
    from headrace.lake.typed.format import table_columns
    from headrace.lake.typed.sample import sample
    from headrace.lake.typed.setting import found_definition, identity_of, set_definition
    from headrace.schemas.documents import examples_in, from_avro, from_examples, from_json_schema

    if sum(map(bool, (json_file, avro_files, example_file, is_inferred))) != 1:
        raise click.UsageError("give one of --json-schema, --avro, --example and --infer")
    if add and not avro_files:
        raise click.UsageError("--add goes with --avro")
    identity = identity_of(root, topic, cluster)
    definition: Definition
    if json_file is not None:
        definition, not_checked = from_json_schema(_content(json_file), str(json_file))
        for keyword in not_checked:
            click.echo(f"not checked: {keyword}", err=True)
    elif avro_files:
        before = found_definition(root, identity) if add else None
        definition = from_avro([_avro_file(given) for given in avro_files], before)
    else:
        given = examples_in(_content(example_file)) if example_file else sample(root, identity, cluster)
        definition, said = from_examples(given)
        for sentence in said:
            click.echo(sentence, err=True)
    typed = set_definition(root, identity, definition, rebuild=rebuild)
    columns = [(field.name, str(field.type)) for field in table_columns(definition)]
    print_table([text("COLUMN"), text("TYPE")], columns)
    click.echo(f"\n{typed.place} gets rows from the next archive run, or from `headrace lake parse`")


@schema.command()
@place_option
@_topic_option
@cluster_options
def show(cluster: Cluster, root: Place, topic: str) -> None:
    """Print a topic's schema, as a file for `set --avro` or `set --json-schema`.

    \b
    Examples:
      headrace lake schema show --lake lake --topic orders > orders.json
    """
    from headrace.lake.typed.setting import definition_of, identity_of
    from headrace.schemas.documents import document_of

    print_json(document_of(definition_of(root, identity_of(root, topic, cluster))))


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
    from headrace.lake.typed.setting import identity_of, unset_definition

    typed = unset_definition(root, identity_of(root, topic, cluster))
    click.echo(f"{typed.place} is kept and gets no more rows")


@schema.command("list")
@lake_option
@json_option
def list_schemas(root: Place, topics: tuple[str, ...], as_json: bool) -> None:
    """List topics with a schema, and the progress of their typed tables.

    \b
    Examples:
      headrace lake schema list --lake lake
    """
    from headrace.lake.table.catalogue import tables_in
    from headrace.lake.typed.setting import schema_info, schemas_waiting

    left_out = LeftOut()
    found = schemas_waiting(root, topics, left_out)
    others = [topic for topic in topics if topic not in {info.topic for info in found}]
    for raw in tables_in(root, others, left_out) if others or not topics else []:
        with left_out.of(raw.identity.topic):
            if (info := schema_info(root, raw)) is not None:
                found.append(info)
    found.sort(key=lambda info: info.topic)
    if as_json:
        print_json(found)
    elif not found:
        left_out.end()
        click.echo(f"no topic in {root} has a schema")
    else:
        headings = [text("TOPIC"), text("FORMAT"), number("COLUMNS"), number("ROWS"), number("REJECTS"), number("LAG")]
        print_table(headings, [(i.topic, i.format, i.columns, i.rows, i.rejected, i.lag) for i in found])
    left_out.end()


@click.command()
@lake_option
@json_option
def parse(root: Place, topics: tuple[str, ...], as_json: bool) -> None:
    """Update typed tables from their raw ones, without Spark and without a broker.

    The archive does this continuously; the command is for tables archived before they had a schema.

    \b
    Examples:
      headrace lake parse --lake lake
      headrace lake parse --lake lake --topics orders
    """
    from headrace.lake.table.catalogue import tables_in
    from headrace.lake.typed.update import Derivation, DeriveRound

    derivation = Derivation(root, say=lambda sentence: click.echo(sentence, err=True))
    total, left_out = DeriveRound(), LeftOut()
    for raw in tables_in(root, topics, left_out):
        with left_out.of(raw.identity.topic):
            done = derivation.catch_up(raw)
            total.rows, total.rejected, total.lag = (
                total.rows + done.rows,
                total.rejected + done.rejected,
                total.lag + done.lag,
            )
    if as_json:
        print_json(total)
    else:
        click.echo(f"{count_of(total.rows, 'row')} parsed, {total.rejected:,} rejected")
    left_out.end()
    if derivation.troubles or total.lag:
        raise click.exceptions.Exit(1)
