"""What keeps records from being parsed: told in a sentence, by the archive and by `lake parse`, and mended later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.lake.storage.place import place_of
from headrace.lake.table.table import TopicTable
from headrace.lake.typed.setting import set_definition
from headrace.lake.typed.update import Derivation
from headrace.lake.upkeep.compaction import compact_table
from headrace.schemas.definition import Definition
from tests.cli.conftest import run_command
from tests.lake.archiving import table_of
from tests.lake.conftest import Topic
from tests.lake.local_archive import archive_locally
from tests.lake.other_reader import count_rows

ANY = Definition("json", {"type": "integer"})


@pytest.fixture
def raw(orders: Topic, tmp_path: Path) -> TopicTable:
    """Two files of partition 0, one of partition 1, and a schema."""
    for n in range(2):
        orders.send([b"%d" % n])
        archive_locally(orders.address, tmp_path, orders.name)
    orders.send([b"2"], partition=1)
    raw = archive_locally(orders.address, tmp_path, orders.name)
    set_definition(place_of(tmp_path), raw.identity, ANY)
    return raw


def test_a_raw_file_that_is_gone_stops_its_partition_and_is_named(
    orders: Topic, raw: TopicTable, tmp_path: Path
) -> None:
    lost = Path(raw.place.uri, raw.coverage[0].files[1].path)
    lost.rename(tmp_path / "away")
    parsed = run_command("lake", "parse", "--lake", tmp_path)
    assert (parsed.code, parsed.out) == (1, "1 row parsed, 0 rejected\n")
    assert parsed.err == f"{orders.name}-0 is not parsed: {lost} is missing\n"
    (tmp_path / "away").rename(lost)
    assert run_command("lake", "parse", "--lake", tmp_path).out == "2 rows parsed, 0 rejected\n"


def test_a_raw_file_that_compaction_took_is_looked_for_again(raw: TopicTable, tmp_path: Path) -> None:
    taken: list[str] = []

    def compact(step: str) -> None:
        if step == "before-parse" and not taken:
            taken.extend(file.path for file in raw.coverage[0].files)
            compact_table(TopicTable(raw.place))
            for path in taken:
                os.unlink(os.path.join(raw.place.uri, path))

    said: list[str] = []
    done = Derivation(place_of(tmp_path), at_step=compact, say=said.append).catch_up(raw)
    assert (done.rows, done.lag, said, len(taken)) == (3, 0, [], 2)


def test_a_typed_table_that_cannot_be_written_is_a_sentence(orders: Topic, raw: TopicTable, tmp_path: Path) -> None:
    typed = Path(f"{table_of(tmp_path, orders.name)}_.typed")
    (typed / "p0").write_text("")
    assert "p0" in run_command("lake", "parse", "--lake", tmp_path).sentence()
    assert count_rows(typed) == 1
    (typed / "p0").unlink()
    assert run_command("lake", "parse", "--lake", tmp_path).out == "2 rows parsed, 0 rejected\n"
