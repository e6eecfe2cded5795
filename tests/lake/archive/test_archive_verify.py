"""`verify` finds what was planted: a flipped byte, a row less, a row more; in files and through Delta itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.client import Cluster
from headrace.lake.archive.status import lake_status
from headrace.lake.archive.verify import Finding, verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.table import TopicTable
from tests.lake.archiving import archive_once, table_of
from tests.lake.conftest import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


@pytest.fixture
def archived(spark: SparkSession, orders: Topic, tmp_path: Path) -> Topic:
    """A topic whose records are all in its table, in two files."""
    for first in (0, ROWS // 2):
        orders.send([b"value-%d" % n for n in range(first, first + ROWS // 2)], key=b"key")
        archive_once(spark, orders.address, tmp_path, orders.name)
    return orders


def rewrite(table: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Puts other rows into the second file, under its name."""
    path = table / TopicTable(place_of(table)).coverage[0].files[1].path
    pq.write_table(change(pq.read_table(path)), path)


def without_700(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 200), rows.slice(201)])


def with_700_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 201), rows.slice(200)])


def with_another_700(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("value")
    changed = [b"value-x" if value == b"value-700" else value for value in rows["value"].to_pylist()]
    return rows.set_column(at, rows.schema.field(at), pa.array(changed, pa.binary()))


def findings(lake: Path, cluster: Cluster | None) -> list[Finding]:
    return verify_lake(place_of(lake), cluster).findings


def test_a_sound_table_has_no_findings(archived: Topic, tmp_path: Path) -> None:
    proof = verify_lake(place_of(tmp_path), archived.cluster)
    assert (proof.topics, proof.files, proof.rows, proof.rows_compared, proof.findings) == (1, 2, ROWS, ROWS, [])
    archived.admin.delete_records({(archived.name, 0): 700})
    proof = verify_lake(place_of(tmp_path), archived.cluster)
    assert (proof.rows, proof.rows_compared, proof.findings) == (ROWS, ROWS - 700, [])


def test_a_flipped_byte_is_found_with_and_without_the_topic(archived: Topic, tmp_path: Path) -> None:
    table = table_of(tmp_path, archived.name)
    file = TopicTable(place_of(table)).coverage[0].files[1]
    content = bytearray((table / file.path).read_bytes())
    chunk = pq.read_metadata(table / file.path).row_group(0).column(6)
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    (table / file.path).write_bytes(content)
    for cluster in (archived.cluster, None):
        (finding,) = findings(tmp_path, cluster)
        assert (finding.topic, finding.partition, finding.path) == (archived.name, 0, file.path)
        assert "cannot be read" in finding.what


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without_700, "the topic has this record and the table does not"),
        (with_700_twice, "the table has this row twice"),
        (with_another_700, "value differ from the topic's"),
    ],
)
def test_a_changed_row_is_found_and_located(
    change: Callable[[pa.Table], pa.Table], what: str, archived: Topic, tmp_path: Path
) -> None:
    rewrite(table_of(tmp_path, archived.name), change)
    found = findings(tmp_path, archived.cluster)
    assert (700, what) in {(finding.offset, finding.what) for finding in found}


@pytest.mark.parametrize("change", [without_700, with_700_twice, with_another_700])
def test_a_changed_row_is_found_long_after_the_topic_has_let_go_of_it(
    change: Callable[[pa.Table], pa.Table], archived: Topic, tmp_path: Path
) -> None:
    archived.admin.delete_records({(archived.name, 0): ROWS})
    table = table_of(tmp_path, archived.name)
    second = TopicTable(place_of(table)).coverage[0].files[1]
    rewrite(table, change)
    found = [finding for finding in findings(tmp_path, archived.cluster) if "bytes" not in finding.what]
    assert found
    assert {finding.path for finding in found} == {second.path}


def test_a_row_deleted_through_delta_is_found(archived: Topic, tmp_path: Path) -> None:
    DeltaTable(str(table_of(tmp_path, archived.name))).delete("offset = 700")
    found = findings(tmp_path, archived.cluster)
    assert any("499 rows that replace others" in finding.what for finding in found)
    assert any("the archive wrote 1000" in finding.what for finding in found)


def test_a_row_added_through_delta_is_found(spark: SparkSession, archived: Topic, tmp_path: Path) -> None:
    table = table_of(tmp_path, archived.name)
    write_deltalake(str(table), DeltaTable(str(table)).to_pyarrow_table().slice(3, 1), mode="append")
    (finding,) = findings(tmp_path, archived.cluster)
    assert "1 rows that the table already has" in finding.what
    assert finding.partition == 0
    _, said = archive_once(spark, archived.address, tmp_path, archived.name)
    assert "has files that the archive did not write" in said[0]


def test_status_shows_hot_and_cold_ranges_lag_and_files(archived: Topic, tmp_path: Path) -> None:
    archived.send([b"more"] * 20)
    archived.admin.delete_records({(archived.name, 0): 300})
    first, second = lake_status(place_of(tmp_path), archived.cluster)
    assert (first.topic, first.partition) == (archived.name, 0)
    assert (first.hot_start, first.hot_end) == (300, ROWS + 20)
    assert (first.cold_start, first.cold_end) == (0, ROWS)
    assert (first.lag, first.rows, first.files, first.gaps) == (20, ROWS, 2, [])
    files = list((tmp_path / table_of(tmp_path, archived.name) / "p0").glob("*.parquet"))
    assert first.size_bytes == sum(file.stat().st_size for file in files)
    assert first.committed == ROWS
    assert (second.partition, second.cold_end, second.lag) == (1, None, 0)
