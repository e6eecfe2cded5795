"""The data directory: ours or rejected, and claimed by one broker at a time.

The code that runs the embedded server relies on two rules:

* A directory is ours if it is empty or carries our marker; anything else is rejected, because a mistyped path must not
  mix our files with somebody's own.
* A lock on the directory itself shows whether it is in use, not a file that somebody could delete. The kernel drops the
  lock with its holder, so a killed broker leaves none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

MARKER = "HEADRACE"
DATA_FORMAT = 1
_RECORD = "valkey.json"
_NODES = "nodes"
_MARKER_TEXT = (
    f"format = {DATA_FORMAT}\n# Data of a headrace broker. Stop the broker before you move or copy this directory.\n"
)
# What a fresh mount or a file browser puts into an empty directory.
_NOT_CONTENT = {"lost+found", ".DS_Store"}


class CannotStart(Exception):
    """One sentence with the problem and its remedy; shown without a traceback."""


class ServerRecord(msgspec.Struct, frozen=True):
    """Where the server of this directory listens and which process it is; pid 0 while it is being started."""

    socket: str
    pid: int


class DataDirectory:
    """A claimed data directory; `release()` gives it back."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._valkey_handle = -1
        self.valkey = path / "valkey"
        self.valkey_log = path / "valkey.log"
        self._record = path / _RECORD
        self._broker_pid = path / "broker.pid"

    @classmethod
    def claim(cls, path: Path) -> DataDirectory:
        """Make the directory if need be, check that it is ours and lock it for this process."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = path.resolve()
            lock = lock_directory(path)
        except (FileExistsError, NotADirectoryError):
            raise CannotStart(f"{path} is not a directory; choose another with --data-dir") from None
        except OSError as e:
            raise CannotStart(
                f"cannot use the data directory {path}: {_reason(e)}; choose another with --data-dir"
            ) from None
        if lock is None:
            raise CannotStart(
                f"the data directory {path} is in use by {_holder(path)}; stop it, or choose another "
                "with --data-dir (make run DATA=...)"
            )
        directory = cls(path, lock)
        try:
            directory._adopt_or_mark()
        except OSError as e:
            directory.release()
            raise CannotStart(f"cannot write to the data directory {path}: {_reason(e)}") from None
        except CannotStart:
            directory.release()
            raise
        return directory

    def _adopt_or_mark(self) -> None:
        marker = self.path / MARKER
        try:
            version = _format_of(marker.read_text())
        except FileNotFoundError:
            if {entry.name for entry in self.path.iterdir()} - _NOT_CONTENT:
                raise CannotStart(
                    f"{self.path} holds files that are not headrace's (there is no {MARKER} file in it); "
                    "choose an empty or new directory with --data-dir"
                ) from None
            replace_file(marker, _MARKER_TEXT)
        else:
            if version is None:
                raise CannotStart(
                    f"{marker} cannot be read as headrace's marker; restore the line `format = {DATA_FORMAT}` "
                    "or choose another directory with --data-dir"
                )
            if version > DATA_FORMAT:
                raise CannotStart(
                    f"{self.path} was written by a newer headrace (format {version}, this one knows {DATA_FORMAT}); "
                    "upgrade headrace or choose another directory with --data-dir"
                )
        replace_file(self._broker_pid, f"{os.getpid()}\n")
        self.valkey.mkdir(mode=0o700, exist_ok=True)

    def lock_valkey(self) -> int | None:
        """The lock of the server's directory, or None while a server lives there."""
        if self._valkey_handle < 0:
            self._valkey_handle = os.open(self.valkey, os.O_RDONLY | os.O_DIRECTORY)
        # By the handle: it stays the same directory, should somebody move or remove the path meanwhile.
        return lock_directory(".", dir_fd=self._valkey_handle)

    def release(self) -> None:
        """Give the directory back; a second call does nothing."""
        if self._lock >= 0:
            self._broker_pid.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1
        if self._valkey_handle >= 0:
            os.close(self._valkey_handle)
            self._valkey_handle = -1

    def read_record(self) -> ServerRecord | None:
        return read_record(self.path)

    def write_record(self, record: ServerRecord) -> None:
        replace_file(self._record, msgspec.json.encode(record).decode())

    def forget_record(self) -> None:
        self._record.unlink(missing_ok=True)

    def log_tail(self, lines: int = 5, limit_bytes: int = 4096) -> str:
        """The end of the server's own log on one line, for an error message."""
        with contextlib.suppress(OSError), self.valkey_log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - limit_bytes))
            return " | ".join(log.read().decode(errors="replace").splitlines()[-lines:])
        return ""


def lock_nodes(path: Path) -> int | None:
    """A lock in a claimed directory for a supervisor's nodes to inherit; None while those of an earlier one live."""
    (path / _NODES).mkdir(mode=0o700, exist_ok=True)
    return lock_directory(path / _NODES)


def are_nodes_left(path: Path) -> bool:
    """Whether orphaned nodes are still running: they are about to stop, but hold their ports."""
    return _is_locked(path / _NODES) and not _is_locked(path)


def _is_locked(path: Path) -> bool:
    try:
        lock = lock_directory(path)
    except OSError:
        return False  # there is none
    if lock is not None:
        os.close(lock)
    return lock is None


def read_record(path: Path) -> ServerRecord | None:
    """The record in a directory that need not be claimed; None without a readable one."""
    try:
        return msgspec.json.decode((path / _RECORD).read_bytes(), type=ServerRecord)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def lock_directory(path: str | Path, *, dir_fd: int | None = None) -> int | None:
    """An exclusive lock on the directory, as a file descriptor; None while another process holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def replace_file(path: Path, text: str) -> None:
    """Write so that a reader, or a crash, finds the old file or the new one and never half of it."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)


def _format_of(text: str) -> int | None:
    """The number of the marker's line `format = N`."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "format" and value.strip().isdecimal():
            return int(value)
    return None


def _holder(path: Path) -> str:
    try:
        return f"another broker (pid {int((path / 'broker.pid').read_text())})"
    except (OSError, ValueError):
        return "another broker"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
