"""Whether an object store keeps two writers apart.

A Delta commit is a file that only one writer may create. A store that ignores the condition on a put lets the second
overwrite the first, and rows would be lost without a trace. Azure and Google always honour it; servers that speak S3
differ, so there it is tried before anything is written for good: one name, put twice. delta-rs has no such verb of its
own (its commits look first, and then the store is not asked), hence obstore, the same client library's own binding.
"""

from __future__ import annotations

import functools
import secrets

from headrace.lake.storage.place import Place
from headrace.lake.storage.s3 import open_bucket

TRIAL = "_.trial"
"""The folder of trials; no topic's folder has such a name, and itself it is no table."""


class UnsafeStore(ValueError):
    """A store on which two archives could overwrite each other's commits."""


@functools.lru_cache(maxsize=64)
def check_store(lake: Place) -> None:
    """Raises `UnsafeStore` where a second put of the same name is not refused."""
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
    # Who only reads a lake does not need this package.
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
