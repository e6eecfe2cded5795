"""Whether an object store keeps two writers apart.

A Delta commit is a file that only one writer may create. A store that ignores the condition on a put lets the second
overwrite the first, and rows would be lost without a trace. So it is tried, with two commits that exclude each other,
before anything is written for good.
"""

from __future__ import annotations

import contextlib
import functools
import secrets

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from headrace.lake.place import Place

TRIAL = "_.trial"
"""The folder of trials; no topic's folder has such a name, and itself it is no table."""
_SCHEMA = pa.schema([pa.field("nothing", pa.int32())])


class UnsafeStore(ValueError):
    """A store on which two archives could overwrite each other's commits."""


@functools.lru_cache(maxsize=64)
def check_store(lake: Place) -> None:
    """Raises `UnsafeStore` where a second put of the same commit is not refused; file systems always refuse it."""
    if lake.is_local:
        return
    trial = f"{TRIAL}/{secrets.token_hex(8)}"
    try:
        DeltaTable.create((lake / trial).uri, _SCHEMA, storage_options=lake.storage_options)
        first, second = (lake / trial).delta(), (lake / trial).delta()
        _commit(first)
        try:
            _commit(second)
        except CommitFailedError:
            return
        raise UnsafeStore(
            f"{lake} lets a second writer overwrite a commit: the store does not honour If-None-Match on a put. "
            "Use a store with conditional puts, or a newer version of this one."
        )
    finally:
        for file in lake.files(trial):
            with contextlib.suppress(OSError):
                lake.delete(file.path)


def _commit(table: DeltaTable) -> None:
    alone = CommitProperties(app_transactions=[Transaction("trial", 1)], max_commit_retries=0)
    table.create_write_transaction([], "append", _SCHEMA, commit_properties=alone)
