"""The last verification of each table, stored beside the tables to be shown later.

It is information for people: nothing relies on it, and verification succeeds even if the lake is not writable.
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
    """Saves it; returns whether that worked."""
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
    """The last verification of a table, if any."""
    lake, path = _where(table)
    try:
        with lake.open(path) as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=TableProof)
    except (OSError, msgspec.DecodeError):
        return None


def _where(table: Place) -> tuple[Place, str]:
    folder, _, name = table.uri.rpartition("/")
    return Place(folder, table.options), f"{FOLDER}/{name}.json"
