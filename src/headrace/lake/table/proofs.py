"""When a table was last proved, kept beside the tables: who looks at the lake later sees it.

Of each table the last proof alone. It is a note for people: nothing relies on it, and a lake that cannot be written to
is no reason for a proof to fail.
"""

from __future__ import annotations

import contextlib

import msgspec
import pyarrow as pa

from headrace.cold_log import TableProof
from headrace.lake.storage.place import Place

FOLDER = "_.proofs"
_MOST_BYTES = 1 << 16


def save_proof(table: Place, proof: TableProof) -> bool:
    """Whether it could be saved."""
    lake, path = _where(table)
    try:
        with contextlib.suppress(FileNotFoundError):
            lake.delete(path)
        lake.put(path, pa.py_buffer(msgspec.json.encode(proof)))
        lake.settle([path])
    except OSError:
        return False
    return True


def load_proof(table: Place) -> TableProof | None:
    """The last proof of a table, if there was one."""
    lake, path = _where(table)
    try:
        with lake.open(path) as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=TableProof)
    except (OSError, msgspec.DecodeError):
        return None


def _where(table: Place) -> tuple[Place, str]:
    folder, _, name = table.uri.rpartition("/")
    return Place(folder, table.options), f"{FOLDER}/{name}.json"
