"""Checks that an object store protects concurrent writers from each other.

A Delta commit is a file that only one writer may create. A store that ignores conditional puts lets a second writer
overwrite the first, and rows would be lost without a trace. Azure and Google always honour them; S3 servers differ, so
there it is tried before any real write: one name, put twice. delta-rs has no such operation (its commits check for the
file first and do not ask the store), hence obstore, another binding of the same client library.
"""

from __future__ import annotations

import functools
import secrets

from headrace.lake.storage.place import Place
from headrace.lake.storage.s3 import open_bucket

TRIAL = "_.trial"
"""The folder for the test; it is not a table, and no topic's folder has such a name."""


class UnsafeStore(ValueError):
    """On this store, two archives could overwrite each other's commits."""


@functools.lru_cache(maxsize=64)
def check_store(lake: Place) -> None:
    """Raises `UnsafeStore` if a second put of the same name succeeds."""
    if not lake.is_s3:
        return
    from obstore.exceptions import BaseError

    try:
        refused = _second_put_is_refused(lake)
    except BaseError as error:
        raise OSError(str(error).partition("\n\n")[0]) from None
    if not refused:
        raise UnsafeStore(
            f"{lake} lets a second writer overwrite a commit: the store does not honour If-None-Match on a put. "
            "Use a store with conditional puts, or a newer version of this one."
        )


def _second_put_is_refused(lake: Place) -> bool:
    # Imported here, because readers of a lake do not need this package.
    import obstore
    from obstore.exceptions import AlreadyExistsError

    store = open_bucket(lake)
    trial = f"{TRIAL}/{secrets.token_hex(8)}"
    obstore.put(store, trial, b"one", mode="create")
    try:
        obstore.put(store, trial, b"another", mode="create")
    except AlreadyExistsError:
        return True
    finally:
        obstore.delete(store, trial)
    return False
