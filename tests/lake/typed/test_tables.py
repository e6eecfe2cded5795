"""Typed tables and rejects with a real broker and real tables: each record is in one of the two, once."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable

from headrace.client import Producer
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.catalogue import tables_in
from headrace.lake.table.names import folder_of
from headrace.lake.table.table import TopicTable
from headrace.lake.typed.compaction import compact_derived
from headrace.lake.typed.sample import SAMPLE, sample
from headrace.lake.typed.setting import identity_of, set_definition
from headrace.lake.typed.table import find_derived
from headrace.lake.typed.update import Derivation, DeriveRound
from headrace.lake.upkeep.compaction import FAN_IN
from headrace.schemas.bounds import SchemaRefused
from headrace.schemas.definition import Definition
from headrace.schemas.documents import from_examples
from headrace.schemas.fields import MOST_LEVELS
from headrace.schemas.infer import MOST_COLUMNS, NO_ROOM, TWIN
from tests.lake.archiving import archive_once
from tests.lake.conftest import Topic
from tests.lake.local_archive import archive_locally
from tests.lake.other_reader import live_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 120
MAY_FIRST_MS = 1_777_629_600_123
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
}
JSON = Definition("json", SCHEMA)


def order(number: int, **more: object) -> bytes:
    return json.dumps({"id": number, "price": number / 2, **more}).encode()


def typed_rows(lake: Path, topic: str, what: str = "typed") -> list[dict[str, Any]]:
    """The rows of a table as polars reads them."""
    place = "_" if what == "typed" else ""
    table = pl.read_delta(str(lake / f"{folder_of(topic)}_.{what}"))
    return table.sort(f"{place}partition", f"{place}offset").to_dicts()


def catch_up(lake: Path, raw: TopicTable, **more: Any) -> DeriveRound:
    return Derivation(place_of(lake), **more).catch_up(raw)


def check_each_once(lake: Path, topic: str, raw: TopicTable) -> None:
    """Every record is in the typed table or in the rejects."""
    typed = [(row["_partition"], row["_offset"]) for row in typed_rows(lake, topic)]
    rejected = [(row["partition"], row["offset"]) for row in typed_rows(lake, topic, "rejects")]
    everything = {(p, offset) for p, covered in raw.coverage.items() for offset in range(covered.end)}
    assert len(typed) + len(rejected) == len(everything)
    assert {*typed, *rejected} == everything


def test_fields_are_columns_and_what_does_not_parse_is_in_the_rejects_with_the_reason(
    orders: Topic, tmp_path: Path
) -> None:
    lines = [{"sku": "a"}, {"sku": None}]
    orders.send([order(1, at="2026-05-01T10:00:00Z", lines=lines[:1])], key=b"k", timestamp_ms=MAY_FIRST_MS)
    orders.send([b"lamp", order(3, lines=lines), None], timestamp_ms=MAY_FIRST_MS)
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, JSON)
    done = catch_up(tmp_path, raw)
    assert (done.rows, done.rejected, done.lag) == (2, 2, 0)
    moment = datetime(2026, 5, 1, 10, 0, 0, 123_000, UTC)
    common = {"_partition": 0, "_timestamp": moment}
    assert typed_rows(tmp_path, orders.name) == [
        common | {
            "_offset": 0, "_key": b"k", "id": 1, "price": 0.5, "at": datetime(2026, 5, 1, 10, tzinfo=UTC),
            "lines": [{"sku": "a"}],
        },
        common | {"_offset": 3, "_key": None, "id": None, "price": None, "at": None, "lines": None},
    ]  # fmt: skip
    common = {"partition": 0, "timestamp": moment, "key": None}
    assert typed_rows(tmp_path, orders.name, "rejects") == [
        common | {"offset": 1, "value": b"lamp", "reason": "JSON is malformed: invalid character (byte 0)"},
        common | {
            "offset": 2, "value": order(3, lines=lines), "reason": "Expected `str`, got `null` - at `$.lines[1].sku`"
        },
    ]  # fmt: skip


def test_later_rounds_add_what_came_since_and_delta_has_statistics_of_it(orders: Topic, tmp_path: Path) -> None:
    for n in range(3):
        orders.send([order(10 * n + i) for i in range(10)], partition=n % 2)
        raw = archive_locally(orders.address, tmp_path, orders.name)
        if n == 0:
            set_definition(place_of(tmp_path), raw.identity, JSON)
        assert catch_up(tmp_path, raw).rows == 10
        assert catch_up(tmp_path, raw) == DeriveRound()
    table = DeltaTable(str(tmp_path / f"{folder_of(orders.name)}_.typed"))
    found = pl.scan_delta(table).filter(pl.col("id") == 15).collect()
    assert found.select("_partition", "_offset").rows() == [(1, 5)]
    bounds = pl.DataFrame(table.get_add_actions(flatten=True)).select("min.id", "max.id", "num_records").sort("min.id")
    assert bounds.rows() == [(0, 9, 10), (10, 19, 10), (20, 29, 10)]


def test_tables_made_from_a_topics_table_are_no_topics_of_the_lake(orders: Topic, tmp_path: Path) -> None:
    orders.send([order(1)])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, JSON)
    catch_up(tmp_path, raw)
    assert [table.identity for table in tables_in(place_of(tmp_path))] == [raw.identity]
    assert verify_lake(place_of(tmp_path), orders.cluster).findings == []


@pytest.mark.parametrize("step", ["before-parse", "before-rejects", "after-rejects", "after-typed"])
def test_a_crash_at_any_step_neither_loses_nor_doubles(step: str, orders: Topic, tmp_path: Path) -> None:
    class Crash(Exception):
        pass

    def crash(reached: str) -> None:
        if reached == step:
            raise Crash

    for n in range(3):
        orders.send([order(n), b"lamp", order(n)], partition=n % 2)
        raw = archive_locally(orders.address, tmp_path, orders.name)
        if n == 0:
            set_definition(place_of(tmp_path), raw.identity, JSON)
        with pytest.raises(Crash):
            catch_up(tmp_path, raw, at_step=crash)
    catch_up(tmp_path, raw)
    check_each_once(tmp_path, orders.name, raw)
    assert len(typed_rows(tmp_path, orders.name, "rejects")) == 3


def test_of_two_at_once_one_commits_and_the_other_goes_on_from_there(orders: Topic, tmp_path: Path) -> None:
    orders.send([order(1), b"lamp"])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, JSON)
    overtaken: list[DeriveRound] = []

    def overtake(reached: str) -> None:
        if reached == "before-rejects" and not overtaken:
            overtaken.append(catch_up(tmp_path, raw))

    assert catch_up(tmp_path, raw, at_step=overtake) == DeriveRound()
    assert overtaken[0].rows == 1
    check_each_once(tmp_path, orders.name, raw)


def test_a_typed_table_that_was_taken_away_is_not_written_to_and_may_be_made_anew(
    orders: Topic, tmp_path: Path
) -> None:
    derivation = Derivation(place_of(tmp_path))
    orders.send([order(1)])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, JSON)
    derivation.catch_up(raw)
    shutil.rmtree(tmp_path / f"{folder_of(orders.name)}_.typed")
    orders.send([order(2)])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    assert derivation.catch_up(raw) == DeriveRound()
    set_definition(place_of(tmp_path), raw.identity, JSON)
    assert derivation.catch_up(raw).rows == 2


def test_a_schema_by_example_grows_with_the_records_and_the_column_is_there_before_the_row(
    orders: Topic, tmp_path: Path
) -> None:
    definition, _ = from_examples([order(1, later=None)])
    orders.send([order(1, later=None)])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, definition)
    catch_up(tmp_path, raw)
    orders.send([order(2, later=[{"x": 1}], new={"deep": {"a": "b"}})])
    orders.send([order(3, new={"deep": {"c": True}})], partition=1)
    raw = archive_locally(orders.address, tmp_path, orders.name)

    class Crash(Exception):
        pass

    def crash(reached: str) -> None:
        if reached == "after-evolve":
            raise Crash

    with pytest.raises(Crash):
        catch_up(tmp_path, raw, at_step=crash)
    assert len(typed_rows(tmp_path, orders.name)) == 1
    said: list[str] = []
    catch_up(tmp_path, raw, say=said.append)
    assert said == [], "the columns were committed before the crash"
    rows = typed_rows(tmp_path, orders.name)
    assert [(row["id"], row["later"], row["new"]) for row in rows] == [
        (1, None, None),
        (2, [{"x": 1}], {"deep": {"a": "b", "c": None}}),
        (3, None, {"deep": {"a": None, "c": True}}),
    ]
    check_each_once(tmp_path, orders.name, raw)


def test_a_record_of_too_many_fields_is_a_reject_and_its_neighbours_get_their_columns(
    orders: Topic, tmp_path: Path
) -> None:
    definition, _ = from_examples([order(1)])
    wide = order(2, **{f"w{n}": n for n in range(MOST_COLUMNS)})
    orders.send([order(1, a="x"), wide, order(3, b={"c": [1]})])
    orders.send([order(4, a="y", ID=7)], partition=1)
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, definition)
    said: list[str] = []
    derivation = Derivation(place_of(tmp_path), say=said.append)
    derivation.catch_up(raw)
    assert said == [
        f"{orders.name}: no column for $.ID: {TWIN}",
        f"{orders.name}: the typed table has new columns",
    ]
    rows = typed_rows(tmp_path, orders.name)
    assert [(row["id"], row["a"], row["b"]) for row in rows] == [
        (1, "x", None), (3, None, {"c": [1]}), (4, "y", None),
    ]  # fmt: skip
    (reject,) = typed_rows(tmp_path, orders.name, "rejects")
    assert (reject["value"], reject["reason"]) == (wide, f"Its fields are 1,002 columns: {NO_ROOM}")
    check_each_once(tmp_path, orders.name, raw)
    orders.send([order(5, ID=8, new=True)])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    said.clear()
    derivation.catch_up(raw)
    assert said == [f"{orders.name}: the typed table has new columns"], "what stays out is told once"


def test_new_fields_are_seen_however_many_records_before_them_have_some_that_stay_out(
    orders: Topic, tmp_path: Path
) -> None:
    definition, _ = from_examples([b'{"id":1}'])
    orders.send([b'{"id":1,"ID":2}'] * 10_001 + [b'{"id":1,"new":3}'])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, definition)
    catch_up(tmp_path, raw)
    assert typed_rows(tmp_path, orders.name)[-1]["new"] == 3


def test_two_partitions_that_disagree_on_a_new_field_make_it_text(orders: Topic, tmp_path: Path) -> None:
    definition, _ = from_examples([b'{"id":1}'])
    orders.send([b'{"id":1,"new":3}'])
    orders.send([b'{"id":2,"new":"x"}'], partition=1)
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, definition)
    assert catch_up(tmp_path, raw).rejected == 0
    assert [row["new"] for row in typed_rows(tmp_path, orders.name)] == ["3", '"x"']


def test_a_deep_record_has_a_table_that_other_readers_open(orders: Topic, tmp_path: Path) -> None:
    value: Any = 7
    for _ in range(100):
        value = {"a": [value]}
    definition, _ = from_examples([b'{"id":1}'])
    orders.send([json.dumps({"id": 1, "deep": value}).encode(), b'{"id":2}'])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, definition)
    assert catch_up(tmp_path, raw).rejected == 0
    found = typed_rows(tmp_path, orders.name)[0]["deep"]
    for _ in range(MOST_LEVELS // 2 - 1):
        found = found["a"][0]
    assert json.dumps(json.loads(found["a"])).count("a") == 100 - MOST_LEVELS // 2


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_sample_has_old_records_and_new_ones(orders: Topic, tmp_path: Path, is_archived: bool) -> None:
    for name in ("old", "middle", "new"):
        orders.send([json.dumps({name: n}).encode() for n in range(8_000)])
        if is_archived:
            archive_locally(orders.address, tmp_path, orders.name)
    identity = identity_of(place_of(tmp_path), orders.name, orders.cluster)
    found = [json.loads(value) for value in sample(place_of(tmp_path), identity, orders.cluster)]
    assert len(found) == SAMPLE
    assert found[0] == {"old": 0}
    assert found[-1] == {"new": 7_999}
    assert {name for one in found for name in one} == {"old", "middle", "new"}
    assert len({str(one) for one in found}) == SAMPLE


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("stored_as", ["log", "stream"])
def test_a_sample_has_each_record_once(orders: Topic, tmp_path: Path, stored_as: str, is_archived: bool) -> None:
    name = f"{orders.name}-{stored_as}"
    orders.admin.create_topic(name, 1, {"headrace.format": stored_as})
    sent = [b"%d" % n for n in range(3_000)]
    for some in (sent[:20], sent[20:2_990], sent[2_990:]):
        with Producer(orders.cluster) as producer:
            for value in some:
                producer.send(name, value)
    if is_archived:
        archive_locally(orders.address, tmp_path, name)
    identity = identity_of(place_of(tmp_path), name, orders.cluster)
    found = [*sample(place_of(tmp_path), identity, orders.cluster)]
    assert found == [value for value in sent if value in {*found}]
    assert (found[0], found[-1]) == (sent[0], sent[-1])
    assert stored_as == "stream" or found == sent


def test_a_newer_schema_adds_columns_and_one_that_does_not_fit_needs_a_rebuild(orders: Topic, tmp_path: Path) -> None:
    lake = place_of(tmp_path)
    orders.send([order(1, note="a"), b'{"id": "text"}'])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(lake, raw.identity, JSON)
    catch_up(tmp_path, raw)
    with_note = {**SCHEMA, "properties": {**SCHEMA["properties"], "note": {"type": "string"}}}
    set_definition(lake, raw.identity, Definition("json", with_note))
    orders.send([order(2, note="b")])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    catch_up(tmp_path, raw)
    assert [row["note"] for row in typed_rows(tmp_path, orders.name)] == [None, "b"]
    texts = {**with_note, "properties": {**with_note["properties"], "id": {"type": ["string", "integer"]}}}
    with pytest.raises(SchemaRefused, match="--rebuild"):
        set_definition(lake, raw.identity, Definition("json", texts))
    set_definition(lake, raw.identity, Definition("json", texts), rebuild=True)
    assert typed_rows(tmp_path, orders.name) == []
    catch_up(tmp_path, raw)
    assert [(row["id"], row["note"]) for row in typed_rows(tmp_path, orders.name)] == [
        ("1", "a"), ('"text"', None), ("2", "b"),
    ]  # fmt: skip
    assert typed_rows(tmp_path, orders.name, "rejects") == []


def test_a_topic_that_is_made_again_gets_new_tables_with_the_same_schema(orders: Topic, tmp_path: Path) -> None:
    orders.send([order(1), b"lamp"])
    former = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), former.identity, JSON)
    catch_up(tmp_path, former)
    orders.admin.delete_topic(orders.name)
    orders.admin.create_topic(orders.name, 1)
    orders.send([order(2), b"lamps", b"more"])
    raw = archive_locally(orders.address, tmp_path, orders.name)
    catch_up(tmp_path, raw)
    assert [row["id"] for row in typed_rows(tmp_path, orders.name)] == [2]
    check_each_once(tmp_path, orders.name, raw)
    kept = f"{folder_of(orders.name)}_.{former.identity.topic_id.hex()}"
    assert pl.read_delta(str(tmp_path / f"{kept}_.typed"))["id"].to_list() == [1]
    assert pl.read_delta(str(tmp_path / f"{kept}_.rejects"))["value"].to_list() == [b"lamp"]


def test_killed_in_the_middle_each_record_is_there_once(orders: Topic, tmp_path: Path) -> None:
    for n in range(4):
        orders.send([order(i) if i % 10 else b"lamp" for i in range(500)], partition=n % 2)
        raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, JSON)
    for step in ("before-rejects", "after-rejects"):
        command = [sys.executable, "-m", "tests.lake.killed_parse", str(tmp_path), orders.name, step]
        killed = subprocess.run(command, check=False, timeout=TIMEOUT_S)
        assert killed.returncode == -signal.SIGKILL
    catch_up(tmp_path, raw)
    check_each_once(tmp_path, orders.name, raw)
    assert len(typed_rows(tmp_path, orders.name, "rejects")) == 200


def test_many_small_files_become_one_with_the_same_rows(orders: Topic, tmp_path: Path) -> None:
    definition, _ = from_examples([order(1)])
    for n in range(FAN_IN + 1):
        orders.send([order(n, **({"late": {"x": n}} if n > 5 else {})), b"lamp" if n % 2 else order(-n)])
        raw = archive_locally(orders.address, tmp_path, orders.name)
        if n == 0:
            set_definition(place_of(tmp_path), raw.identity, definition)
        catch_up(tmp_path, raw)
    typed = tmp_path / f"{folder_of(orders.name)}_.typed"
    assert len(live_files(typed)) == 2
    rows = typed_rows(tmp_path, orders.name)
    assert [row["late"] for row in rows if row["id"] >= 1] == [None] * 5 + [{"x": n} for n in range(6, FAN_IN + 1)]
    check_each_once(tmp_path, orders.name, raw)
    assert catch_up(tmp_path, raw) == DeriveRound()
    assert [compact_derived(table) for table in find_derived(place_of(tmp_path), raw.identity)] == [(2, 1), (5, 1)]
    assert typed_rows(tmp_path, orders.name) == rows
    check_each_once(tmp_path, orders.name, raw)


def test_the_archive_keeps_typed_tables_up_and_goes_on_past_bad_records(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    definition, _ = from_examples([order(1)])
    orders.send([order(1), b"lamp"], timestamp_ms=MAY_FIRST_MS)
    _, _ = archive_once(spark, orders.address, tmp_path, orders.name)
    (raw,) = tables_in(place_of(tmp_path))
    set_definition(place_of(tmp_path), raw.identity, definition)
    orders.send([order(2, at="2026-05-01T10:00:00Z", lines=[{"n": 1}])], partition=1)
    archive, said = archive_once(spark, orders.address, tmp_path, orders.name)
    assert archive.derivation.troubles == {}
    assert said == [f"{orders.name}: the typed table has new columns"]
    raw.refresh()
    check_each_once(tmp_path, orders.name, raw)
    table = tmp_path / f"{folder_of(orders.name)}_.typed"
    seen = spark.read.option("mergeSchema", True).parquet(*(str(table / file) for file in live_files(table)))
    assert dict(seen.dtypes)["at"] == "timestamp"
    assert dict(seen.dtypes)["lines"] == "array<struct<n:bigint>>"
    assert sorted((row["id"], row["price"]) for row in seen.collect()) == [(1, 0.5), (2, 1.0)]
