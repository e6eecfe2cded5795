"""A location of files of the lake: a folder in a file system or in an object store, with the same few operations.

The lake uses places and never paths, so that tables in a bucket and on a disk share the same code. Object stores are
accessed by delta-rs's own client, for both the Delta log and the data files: credentials from the environment or the
`storage.*` options apply to both, on the driver, the executors and the broker. A place is plain data, so it can be sent
to Spark's tasks with its options; it never shows them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.fs
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

SCHEMES = ("s3", "abfss", "gs")
_UNSAFE_OPTIONS = ("aws_s3_allow_unsafe_rename", "allow_unsafe_rename", "aws_conditional_put", "conditional_put")
"""Options that let two writers both believe that they made the same commit."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_STORE_CODE = re.compile("<Code>([^<]*)</Code>")
_ARROW_FILE = re.compile(r"local file '(?P<file>[^']*)'.*\[errno \d+\] (?P<said>[^.\n]*)")
_DELTA_FILE = re.compile(r"LocalFileSystem error: .*: (?P<said>[^:\n]*) \(os error \d+\)")
"""How Arrow and delta-rs wrap a file system's errors."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PENDING = ".pending"
"""Suffix of a file that is not committed yet."""


class FoundFile(msgspec.Struct, frozen=True):
    """A file in a listing; its path is relative to the place."""

    path: str
    size_bytes: int
    modified: datetime


class Place(msgspec.Struct, frozen=True):
    """A folder: an absolute path, or the URI of an object store with its options."""

    uri: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"Place({self.uri!r})"

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.uri}/{name}", self.options)

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def is_s3(self) -> bool:
        return self.uri.startswith("s3://")

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options for delta-rs."""
        return dict(self.options) or None

    # Tables

    def delta(self) -> DeltaTable:
        """Opens the Delta table here."""
        return DeltaTable(self.uri, storage_options=self.storage_options)

    def has_table(self) -> bool:
        return DeltaTable.is_deltatable(self.uri, self.storage_options)

    def folders(self) -> list[str]:
        """The names of the folders here; none if the place does not exist, `OSError` if it is unreadable."""
        if self.is_local:
            with contextlib.suppress(FileNotFoundError), os.scandir(self.uri) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
            return []
        found = self.filesystem.get_file_info(pyarrow.fs.FileSelector("", allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == pyarrow.fs.FileType.Directory)

    # Files

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """The place as an Arrow file system."""
        return _filesystem(self)

    def open(self, path: str) -> pa.NativeFile:
        """Opens a file for random access; `FileNotFoundError` if it is gone."""
        return self.filesystem.open_input_file(path)

    def put(self, path: str, content: pa.Buffer) -> None:
        """Writes a new file, pending until `settle`. In an object store it gets its final name at once."""
        if not self.is_local:
            with self.filesystem.open_output_stream(path) as stream:
                stream.write(content)
            return
        target = Path(self.uri, path + PENDING)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                # On a full disk, an incomplete file must not keep its space.
                target.unlink(missing_ok=True)
                raise

    def settle(self, paths: Sequence[str]) -> None:
        """Gives written files their final names. One that was removed meanwhile is then missing, which is detected."""
        if not self.is_local:
            return
        for path in paths:
            target = os.path.join(self.uri, path)
            with contextlib.suppress(FileNotFoundError):
                os.rename(target + PENDING, target)
        for folder in {os.path.dirname(os.path.join(self.uri, path)) for path in paths}:
            with contextlib.suppress(FileNotFoundError):
                _sync_folder(folder)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The size of each file in bytes; None for a missing one."""
        return [info.size for info in self.filesystem.get_file_info(list(paths))]

    def files(self, folder: str = "") -> list[FoundFile]:
        """All files below a folder."""
        selector = pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=True)
        found = self.filesystem.get_file_info(selector)
        return [FoundFile(info.path, info.size, info.mtime) for info in found if info.type == pyarrow.fs.FileType.File]

    def delete(self, path: str) -> None:
        """Deletes a file."""
        self.filesystem.delete_file(path)


def place_of(lake: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Place:
    """The place for a path or URI given by the user, or an error that says why it cannot be one."""
    lake, options = os.fspath(lake), {name.lower(): value for name, value in (options or {}).items()}
    for name in _UNSAFE_OPTIONS:
        if name in options and options[name].lower() not in ("false", "etag"):
            raise ValueError(f"The storage option {name} lets two archives overwrite each other's commits; omit it.")
    uri = _URI.fullmatch(lake)
    if uri is None or uri[1].lower() == "file":
        if options:
            raise ValueError(f"{lake} is a folder; storage options are for object stores.")
        return Place(str(Path(uri[2] if uri else lake).absolute()))
    if uri[1].lower() not in SCHEMES or not uri[2].strip("/"):
        raise ValueError(f"{lake} is neither a folder nor {', '.join(f'{s}://...' for s in SCHEMES)}.")
    return Place(f"{uri[1].lower()}://{uri[2].strip('/')}", tuple(sorted(options.items())))


def reason(error: BaseException) -> str:
    """The error as one line: object store clients print coloured trees, file systems numbers."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.strerror}: {error.filename}"
    if found := _ARROW_FILE.search(str(error)):
        return f"{found['said']}: {found['file']}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = [_COLOURS.sub("", line).strip(" \u21b3") for line in str(error).splitlines()]
    codes = [found[1] for line in lines if (found := _STORE_CODE.search(line))]
    said = ": ".join([*(line for line in lines if line and not line.startswith("<")), *codes])
    return found["said"] if (found := _DELTA_FILE.search(said)) else said


def _sync_folder(folder: str) -> None:
    """Syncs the folder: a file name is durable only after that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@functools.lru_cache(maxsize=1024)
def _filesystem(place: Place) -> pyarrow.fs.FileSystem:
    if place.is_local:
        return pyarrow.fs.SubTreeFileSystem(place.uri, pyarrow.fs.LocalFileSystem())
    return pyarrow.fs.PyFileSystem(_StoreHandler(place.uri, place.storage_options))


class _StoreHandler(DeltaStorageHandler):
    """delta-rs's file system; its streams accept only bytes, while Arrow passes buffers."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        return pa.PythonFile(_BytesOutput(self._handler.open_output_stream(path, metadata)), mode="w")


class _BytesOutput:
    def __init__(self, output: Any) -> None:
        self._output = output
        self.closed = False

    def write(self, data: pa.Buffer) -> int:
        return int(self._output.write(bytes(data)))

    def flush(self) -> None:
        self._output.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._output.close()
