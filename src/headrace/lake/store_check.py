"""Whether an object store keeps two writers apart.

A Delta commit is a file that only one writer may create. A store that ignores the condition on a put lets the second
overwrite the first, and rows would be lost without a trace. Azure and Google always honour it; servers that speak S3
differ, so there it is tried before anything is written for good: one name, put twice. delta-rs has no such verb of its
own (its commits look first, and then the store is not asked), hence obstore, the same client library's own binding.
"""

from __future__ import annotations

import functools
import os
import secrets
from typing import Any

from headrace.lake.place import Place

TRIAL = "_.trial"
"""The folder of trials; no topic's folder has such a name, and itself it is no table."""

_OPTIONS = ("access_key_id", "secret_access_key", "session_token", "region", "endpoint", "endpoint_url",
            "virtual_hosted_style_request", "skip_signature")  # fmt: skip
_CLIENT_OPTIONS = ("allow_http", "allow_invalid_certificates", "proxy_url")
"""Of the storage options those that decide whether a store is reached."""


class UnsafeStore(ValueError):
    """A store on which two archives could overwrite each other's commits."""


@functools.lru_cache(maxsize=64)
def check_store(lake: Place) -> None:
    """Raises `UnsafeStore` where a second put of the same name is not refused."""
    if not lake.uri.startswith("s3://"):
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
    from obstore.store import S3Store

    given = {name.removeprefix("aws_"): value for name, value in lake.options}
    in_environment = {name: value for name in _CLIENT_OPTIONS if (value := os.environ.get(f"AWS_{name.upper()}"))}
    client: Any = {name: value for name, value in (in_environment | given).items() if name in _CLIENT_OPTIONS}
    config: Any = {f"aws_{name}": value for name, value in given.items() if name in _OPTIONS}
    store = S3Store.from_url(lake.uri, config=config, client_options=client)
    trial = f"{TRIAL}/{secrets.token_hex(8)}"
    obstore.put(store, trial, b"one", mode="create")
    try:
        obstore.put(store, trial, b"another", mode="create")
    except AlreadyExistsError:
        return True
    finally:
        obstore.delete(store, trial)
    return False
