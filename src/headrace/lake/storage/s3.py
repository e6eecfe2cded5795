"""A bucket accessed with obstore, another binding of delta-rs's object store library.

delta-rs itself reads and writes tables. It has no conditional put, and it holds the GIL while it waits for a store;
where one of these matters, this module is used, with the same options.
"""

from __future__ import annotations

import io
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.lake.storage.place import Place

if TYPE_CHECKING:
    from obstore.store import S3Store

_OPTIONS = ("access_key_id", "secret_access_key", "session_token", "region", "endpoint", "endpoint_url",
            "virtual_hosted_style_request", "skip_signature")  # fmt: skip
_CLIENT_OPTIONS = ("allow_http", "allow_invalid_certificates", "proxy_url", "timeout", "connect_timeout")
"""The storage options that are needed to connect."""


def open_bucket(place: Place) -> S3Store:
    """Opens the bucket of a place; paths are relative to the place."""
    from obstore.store import S3Store

    given = {name.removeprefix("aws_"): value for name, value in place.options}
    in_environment = {name: value for name in _CLIENT_OPTIONS if (value := os.environ.get(f"AWS_{name.upper()}"))}
    client: Any = {name: value for name, value in (in_environment | given).items() if name in _CLIENT_OPTIONS}
    config: Any = {f"aws_{name}": value for name, value in given.items() if name in _OPTIONS}
    retry: Any = {}
    if "max_retries" in given:
        retry["max_retries"] = int(given["max_retries"])
    if (seconds := given.get("retry_timeout", "").removesuffix("s")).isdecimal():
        retry["retry_timeout"] = timedelta(seconds=int(seconds))
    return S3Store.from_url(place.uri, config=config, client_options=client, retry_config=retry or None)


def open_object(bucket: S3Store, path: str, size_bytes: int) -> pa.NativeFile:
    """A file of known size for random access: there is no request before the first read."""
    return pa.PythonFile(_ObjectFile(bucket, path, size_bytes), mode="r")


class _ObjectFile(io.RawIOBase):
    """Reads ranges. Arrow protects `seek` and `read` with its own lock."""

    def __init__(self, bucket: S3Store, path: str, size_bytes: int) -> None:
        self._bucket, self._path, self._size = bucket, path, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Reads the next bytes with one request."""
        import obstore
        from obstore.exceptions import BaseError, NotFoundError

        end = self._size if size < 0 else min(self._size, self._position + size)
        if end <= self._position:
            return b""
        try:
            found = obstore.get_range(self._bucket, self._path, start=self._position, end=end)
        except (NotFoundError, FileNotFoundError):
            raise FileNotFoundError(f"{self._path} is not there") from None
        except BaseError as error:
            raise OSError(str(error).partition("\n\n")[0]) from None
        self._position = end
        return bytes(found)
