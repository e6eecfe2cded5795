"""A description of a topic's table for people: size, last commit, rejects, and last verification."""

from __future__ import annotations

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from headrace.cold_log import ColdTable
from headrace.lake.storage.place import Place
from headrace.lake.table.names import folder_of_derived
from headrace.lake.table.proofs import load_proof
from headrace.lake.table.snapshot import Snapshot


def describe_table(snapshot: Snapshot) -> ColdTable:
    """Blocks: reads the logs of the table and its derived tables."""
    place = snapshot.place
    files = [file for covered in snapshot.coverage.values() for file in covered.files if not file.is_gap]
    last = place.delta().history(1)
    return ColdTable(
        place=str(place),
        files=len(files),
        rows=sum(file.rows for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        last_commit_ms=int(last[0].get("timestamp", 0)) if last else 0,
        rejects=_rows_beside(place, "rejects"),
        proof=load_proof(place),
    )


def _rows_beside(place: Place, what: str) -> int | None:
    """Rows of a derived table, by its log; None if there is none."""
    try:
        delta = Place(folder_of_derived(place.uri, what), place.options).delta()
    except TableNotFoundError:
        return None
    counts = pa.table(delta.get_add_actions(flatten=True)).column("num_records").to_pylist()
    return sum(count or 0 for count in counts)
