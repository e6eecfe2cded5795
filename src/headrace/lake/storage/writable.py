"""Checks that a lake is writable before Spark is started, so that a wrong path or missing right is reported at once."""

from __future__ import annotations

import os
import tempfile

from headrace.lake.storage.conditional_put import check_store
from headrace.lake.storage.place import Place, reason


class NotWritable(OSError):
    """Nothing can be archived there; says why."""


def check_writable(lake: Place) -> None:
    """Raises `NotWritable` or `UnsafeStore`; creates a missing folder."""
    try:
        if lake.is_local:
            os.makedirs(lake.uri, exist_ok=True)
            # A unique name, deleted with the block: others may check at the same time.
            with tempfile.NamedTemporaryFile(dir=lake.uri, prefix=".trial-"):
                pass
        elif lake.is_s3:
            check_store(lake)
        else:
            lake.folders()
    except FileExistsError:
        raise NotWritable(f"{lake} is a file, not a folder") from None
    except OSError as error:
        raise NotWritable(f"{lake} is not writable: {error.strerror or reason(error)}") from None
