"""The embedded server's socket: a short path that only we can enter, and the process that answers there.

Separate from the data directory because a socket's path is limited to about 100 bytes (104 on macOS, 108 on Linux) and
a data directory's is not.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
from pathlib import Path

from headrace.store.embedded.data_directory import CannotStart, ServerRecord

_PATH_LIMIT_BYTES = 100


def choose_socket_path() -> str:
    """An unused path, short enough for every system."""
    name = f"headrace-{os.urandom(6).hex()}"
    for base in (os.environ.get("TMPDIR", "/tmp"), "/tmp"):
        path = os.path.join(os.path.abspath(base), name, "valkey.sock")
        if os.path.isdir(base) and len(os.fsencode(path)) <= _PATH_LIMIT_BYTES:
            break
    return path


def make_room_for_socket(path: str) -> None:
    """Make the socket's directory, which only we may enter, and remove a dead server's socket from it."""
    directory = Path(path).parent
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        if not is_private(directory):
            raise CannotStart(
                f"other users may enter {directory}, the folder of the embedded server's socket; remove it"
            )
        Path(path).unlink(missing_ok=True)
    except OSError as e:
        raise CannotStart(f"cannot make {directory} for the embedded server's socket: {e.strerror}") from None


def remove_socket(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).unlink(missing_ok=True)
        os.rmdir(os.path.dirname(path))


def remove_stale_socket(record: ServerRecord | None) -> None:
    """Remove the leftovers of a killed server; a copied data directory may name a live server's socket."""
    if record is None or not is_private(Path(record.socket).parent):
        return
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        if probe.connect_ex(record.socket) == 0:
            return
    remove_socket(record.socket)


def is_private(path: Path) -> bool:
    """A private directory: its owner is also the owner of the socket in it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def is_server(pid: int, path: str) -> bool:
    """Whether the process is still the server of that socket, and not another one with a recycled pid."""
    if pid <= 0:
        return False
    if os.path.isdir("/proc/self"):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
    else:
        ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        line = subprocess.run(ps, capture_output=True, check=False).stdout
    return os.fsencode(path) in line
