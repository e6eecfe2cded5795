"""What a table holds, told by a reader that shares no code with ours.

The Delta log is replayed here in plain JSON by the rules of Delta's protocol, and the rows are read by DuckDB's own
Parquet reader. The archive commits through delta-rs and writes with Arrow, and `verify` reads with both: neither is in
this. Polars would be less of a second opinion, for its scan_delta asks delta-rs which files there are, and DuckDB's
delta extension is downloaded when it is first used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb

Row = tuple[int, int, bytes | None]


def rows_of(table: Path) -> list[Row]:
    """Partition, offset and value of all rows of a table, in order; a row that is there twice comes twice."""
    files = live_files(table)
    if not files:
        return []
    return ask(
        'SELECT "partition", "offset", "value" FROM read_parquet($files) ORDER BY "partition", "offset"',
        files=[str(table / file) for file in files],
    )


def count_rows(table: Path) -> int:
    """How many rows a table has, by the footers of its files; 0 where there is none yet."""
    files = [str(table / file) for file in live_files(table)] if (table / "_delta_log").exists() else []
    if not files:
        return 0
    ((count,),) = ask("SELECT count(*) FROM read_parquet($files)", files=files)
    return int(count)


def live_files(table: Path) -> list[str]:
    """The files that the newest version of a table consists of, relative to it."""
    log = table / "_delta_log"
    live: set[str] = set()
    behind = -1
    if (pointer := log / "_last_checkpoint").exists():
        behind = json.loads(pointer.read_text())["version"]
        live = _files_in_checkpoint(log, behind)
    for commit in sorted(log.glob("*.json")):
        if commit.stem.isdecimal() and int(commit.stem) > behind:
            for line in commit.read_text().splitlines():
                _replay(json.loads(line), live)
    return sorted(live)


def ask(question: str, **values: object) -> list[Any]:
    """All rows of DuckDB's answer, over a connection of its own: on the shared one, an answer that is not read to its
    end refuses the next question, whoever asks it.
    """
    with duckdb.connect() as connection:
        return connection.execute(question, values).fetchall()


def _replay(action: dict[str, Any], live: set[str]) -> None:
    if "add" in action:
        live.add(unquote(action["add"]["path"]))
        assert "deletionVector" not in action["add"]
    elif "remove" in action:
        live.discard(unquote(action["remove"]["path"]))


def _files_in_checkpoint(log: Path, version: int) -> set[str]:
    parts = [str(part) for part in log.glob(f"{version:020}.checkpoint*.parquet")]
    found = ask('SELECT "add".path FROM read_parquet($parts) WHERE "add".path IS NOT NULL', parts=parts)
    return {unquote(path) for (path,) in found}
