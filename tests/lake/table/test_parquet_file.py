"""The files that the archive writes: compressed where it pays, and the same rows for every reader."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.lake.records.digest import RowDigest
from headrace.lake.storage.place import place_of
from headrace.lake.table.parquet_file import RangeWriter
from tests.lake import other_reader
from tests.lake.made_table import make_table, rows

ROWS = 200
HEX = random.Random(1).randbytes(ROWS * 500).hex().encode()
RANDOM_TEXT = [HEX[1000 * at : 1000 * at + 1000] for at in range(ROWS)]
REPETITIVE = [b'{"order": %d, "remark": "%s"}' % (at, b"none at all, " * 70) for at in range(ROWS)]


def rows_with(values: list[bytes | None]) -> pa.RecordBatch:
    made = rows(0, range(len(values)))
    at = made.schema.get_field_index("value")
    return made.set_column(at, made.schema.field(at), pa.array(values, pa.binary()))


def codecs_of(file: Path) -> dict[str, str]:
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return {column.path_in_schema: column.compression for column in columns}


@pytest.mark.parametrize(
    ("values", "to_stay", "codec"),
    [
        (RANDOM_TEXT, False, "UNCOMPRESSED"),
        (REPETITIVE, False, "SNAPPY"),
        ([None] * ROWS, False, "SNAPPY"),
        ([b""] * ROWS, False, "SNAPPY"),
        (RANDOM_TEXT, True, "ZSTD"),
    ],
)
def test_values_are_compressed_where_it_makes_them_smaller(
    tmp_path: Path, values: list[bytes | None], to_stay: bool, codec: str
) -> None:
    table, made = make_table(tmp_path), rows_with(values)
    writer = RangeWriter(table.place, 0, 0, to_stay=to_stay)
    writer.add(made.slice(0, ROWS // 2))
    writer.add(made.slice(ROWS // 2))
    written = writer.finish(ROWS)
    table.commit([written])
    file = Path(table.place.uri, written.file.path)
    codecs = codecs_of(file)
    assert codecs.pop("value") == codec
    assert set(codecs.values()) == {"ZSTD" if to_stay else "SNAPPY"}

    digest = RowDigest()
    digest.add(made)
    assert written.file.digest == digest.hex()
    assert pq.read_table(file).to_pylist() == made.to_pylist()
    assert other_reader.rows_of(Path(table.place.uri)) == [(0, at, value) for at, value in enumerate(values)]
    assert pl.read_parquet(file)["value"].to_list() == values


def test_a_file_of_values_that_do_not_shrink_is_hardly_larger_than_they_are(tmp_path: Path) -> None:
    writer = RangeWriter(place_of(tmp_path), 0, 0)
    writer.add(rows_with([*RANDOM_TEXT]))
    assert writer.finish(ROWS).file.size_bytes < 1.1 * sum(map(len, RANDOM_TEXT))
