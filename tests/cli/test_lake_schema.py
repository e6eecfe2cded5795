"""`headrace lake schema` and `headrace lake parse` as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.client import Admin, Cluster, Producer
from tests.broker_process import BrokerProcess
from tests.cli.conftest import Run
from tests.lake.local_archive import archive_locally

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


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


def test_from_a_schema_to_rows_and_back(
    run: Run, broker: BrokerProcess, orders: str, lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA | {"not": {}}))
    given = ("--lake", str(lake), "--topic", orders)
    set_up = run("lake", "schema", "set", *given, "--json-schema", tmp_path / "orders.json")
    assert set_up.err == "not checked: not at $\n"
    assert [line.split()[:2] for line in set_up.out.splitlines()[5:7]] == [["id", "int64"], ["item", "string"]]
    assert run("lake", "schema", "show", *given).json == SCHEMA | {"not": {}}
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
    assert inferred.err == "1 example passed over: no JSON\n"
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
    assert "need their ids" in both.sentence()


def test_what_cannot_be_meant_is_said(run: Run, orders: str, lake: Path, tmp_path: Path) -> None:
    given = ("lake", "schema", "set", "--lake", str(lake), "--topic", orders)
    assert "one of --json-schema, --avro, --example and --infer" in run(*given, fails=True).sentence(2)
    (tmp_path / "bad.json").write_text("{")
    assert "is no JSON" in run(*given, "--json-schema", tmp_path / "bad.json", fails=True).sentence()
    assert "This is no Avro schema" in run(*given, "--avro", _write(tmp_path, {"type": "x"}), fails=True).sentence()
    assert "cannot read nowhere" in run(*given, "--avro", "7=nowhere", fails=True).sentence()
    run(*given, "--json-schema", _write(tmp_path, SCHEMA))
    other = {"properties": {"id": {"type": "string"}}}
    assert "--rebuild" in run(*given, "--json-schema", _write(tmp_path, other), fails=True).sentence()
    run(*given, "--json-schema", _write(tmp_path, other), "--rebuild")


def _write(folder: Path, document: object) -> Path:
    (folder / "schema").write_text(json.dumps(document))
    return folder / "schema"
