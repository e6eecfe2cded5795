"""`headrace lake schema` and `headrace lake parse` as a person meets them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pytest

from headrace.client import Admin, Cluster, Producer
from tests.broker_process import BrokerProcess
from tests.cli.conftest import Run
from tests.lake.local_archive import archive_locally

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}}
AVRO: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def orders(broker: BrokerProcess, topic: str) -> str:
    """A topic with two records in JSON and one that is none."""
    with Cluster(broker.address) as cluster:
        Admin(cluster).create_topic(topic, 1)
        with Producer(cluster) as producer:
            for value in (b'{"id": 1, "item": "lamp"}', b"lamp", b'{"id": 2, "item": "desk", "n": 1.5}'):
                producer.send(topic, value)
    return topic


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_a_value_that_is_no_object_is_one_column(run: Run, orders: str, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "text.avsc").write_text('"string"')
    run("lake", "schema", "set", "--lake", lake, "--topic", orders, "--avro", tmp_path / "text.avsc")
    assert run("lake", "schema", "list", "--lake", lake).table == [[orders, "avro", "1", "0", "0", "0"]]


def test_from_a_schema_to_rows_and_back(
    run: Run, broker: BrokerProcess, orders: str, lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA | {"not": {}}))
    given = ("--lake", str(lake), "--topic", orders)
    set_up = run("lake", "schema", "set", *given, "--json-schema", tmp_path / "orders.json")
    assert set_up.err == "not checked: not at $\n"
    assert [line.split()[:2] for line in set_up.out.splitlines()[5:7]] == [["id", "int64"], ["item", "string"]]
    assert run("lake", "schema", "show", *given).json == SCHEMA | {"not": {}}
    for topics in ((), ("--topics", orders)):
        assert run("lake", "schema", "list", "--lake", lake, *topics).table == [[orders, "json", "2", "0", "0", "0"]]
    archive_locally(broker.address, lake, orders)
    assert run("lake", "schema", "list", "--lake", lake).table == [[orders, "json", "2", "0", "0", "3"]]
    assert run("lake", "parse", "--lake", lake).out == "2 rows parsed, 1 rejected\n"
    assert run("lake", "parse", "--lake", lake, "--json").json["rows"] == 0
    assert run("lake", "schema", "list", "--lake", lake).table == [[orders, "json", "2", "2", "1", "0"]]
    kept = ["nothing to do"] * 3
    assert [line.partition(": ")[2] for line in run("lake", "compact", "--lake", lake).out.splitlines()] == kept
    vacuumed = run("lake", "vacuum", "--lake", lake).out.splitlines()
    assert vacuumed == [f"{orders}{what}: 0 files deleted" for what in ("", " typed", " rejects")]
    assert "gets no more rows" in run("lake", "schema", "unset", *given).out
    assert run("lake", "schema", "list", "--lake", lake).out == f"no topic in {lake} has a schema\n"
    assert "has no schema" in run("lake", "schema", "show", *given, fails=True).sentence()


def test_a_schema_by_example_of_a_file_of_the_topic_or_of_its_table(
    run: Run, broker: BrokerProcess, orders: str, lake: Path, tmp_path: Path
) -> None:
    given = ("lake", "schema", "set", "--lake", str(lake), "--topic", orders)
    inferred = run(*given, "--infer")
    assert inferred.err == "1 example skipped: not JSON\n"
    assert [line.split()[0] for line in inferred.out.splitlines()[5:8]] == ["id", "item", "n"]
    archive_locally(broker.address, lake, orders)
    assert run(*given, "--infer").out == inferred.out
    (tmp_path / "examples").write_text('{"id": 1}\n{"id": 2, "more": true}\n')
    assert "more        bool" in run(*given, "--example", tmp_path / "examples").out


def test_avro_schemas_come_with_or_without_ids(run: Run, orders: str, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text(json.dumps(AVRO))
    given = ("lake", "schema", "set", "--lake", str(lake), "--topic", orders)
    assert "id          int64" in run(*given, "--avro", tmp_path / "a.avsc").out
    run(*given, "--avro", f"7={tmp_path / 'a.avsc'}", "--avro", f"9={tmp_path / 'a.avsc'}")
    both = run(*given, "--avro", f"7={tmp_path / 'a.avsc'}", "--avro", tmp_path / "a.avsc", fails=True)
    assert "need ids" in both.sentence()


def test_avro_schemas_with_ids_are_shown_set_again_and_added_to(
    run: Run, broker: BrokerProcess, topic: str, lake: Path, tmp_path: Path
) -> None:
    newer = AVRO | {"fields": [{"name": "name", "type": "string", "default": ""}, *AVRO["fields"]]}
    values = [(7, AVRO, {"id": 1}), (9, newer, {"id": 2, "name": "b"}), (8, AVRO, {"id": 3})]
    with Cluster(broker.address) as cluster:
        Admin(cluster).create_topic(topic, 1)
        with Producer(cluster) as producer:
            for schema_id, schema, record in values:
                fastavro.schemaless_writer(out := io.BytesIO(), fastavro.parse_schema(schema), record)
                producer.send(topic, b"\0" + schema_id.to_bytes(4, "big") + out.getvalue())
    given = ("--lake", str(lake), "--topic", topic)
    (tmp_path / "old").write_text(json.dumps(AVRO))
    (tmp_path / "new").write_text(json.dumps(newer))
    run("lake", "schema", "set", *given, "--avro", f"7={tmp_path / 'old'}")
    run("lake", "schema", "set", *given, "--avro", f"9={tmp_path / 'new'}", "--add")
    shown = run("lake", "schema", "show", *given)
    assert [one["id"] for one in shown.json] == [7, 9]
    (tmp_path / "shown").write_text(shown.out)
    run("lake", "schema", "set", *given, "--avro", tmp_path / "shown", "--rebuild")
    assert run("lake", "schema", "show", *given).out == shown.out
    archive_locally(broker.address, lake, topic)
    assert run("lake", "parse", "--lake", lake).out == "2 rows parsed, 1 rejected\n"
    typed = pl.read_delta(str(lake / f"{topic}_.typed")).sort("_offset")
    assert typed.select("name", "id").rows() == [("", 1), ("b", 2)]
    rejects = pl.read_delta(str(lake / f"{topic}_.rejects"))
    assert rejects["reason"].to_list() == ["Avro: Schema id 8 is unknown, only 7, 9"]


def test_a_schema_by_example_is_shown_and_set_again_and_still_grows(
    run: Run, orders: str, lake: Path, tmp_path: Path
) -> None:
    given = ("--lake", str(lake), "--topic", orders)
    run("lake", "schema", "set", *given, "--infer")
    shown = run("lake", "schema", "show", *given)
    assert shown.json["x-evolves"] is True
    (tmp_path / "shown").write_text(shown.out)
    run("lake", "schema", "set", *given, "--json-schema", tmp_path / "shown")
    assert run("lake", "schema", "show", *given).out == shown.out


def test_what_cannot_be_meant_is_said(run: Run, orders: str, lake: Path, tmp_path: Path) -> None:
    given = ("lake", "schema", "set", "--lake", str(lake), "--topic", orders)
    assert "one of --json-schema, --avro, --example and --infer" in run(*given, fails=True).sentence(2)
    assert "--add goes with --avro" in run(*given, "--infer", "--add", fails=True).sentence(2)
    (tmp_path / "bad.json").write_text("{")
    assert "is not JSON" in run(*given, "--json-schema", tmp_path / "bad.json", fails=True).sentence()
    assert "This is not an Avro schema" in run(*given, "--avro", _write(tmp_path, {"type": "x"}), fails=True).sentence()
    assert "cannot read nowhere" in run(*given, "--avro", "7=nowhere", fails=True).sentence()
    run(*given, "--json-schema", _write(tmp_path, SCHEMA))
    other = {"properties": {"id": {"type": "string"}}}
    assert "--rebuild" in run(*given, "--json-schema", _write(tmp_path, other), fails=True).sentence()
    run(*given, "--json-schema", _write(tmp_path, other), "--rebuild")


def _write(folder: Path, document: object) -> Path:
    (folder / "schema").write_text(json.dumps(document))
    return folder / "schema"
