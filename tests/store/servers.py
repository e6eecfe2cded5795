"""A real Valkey server as a child process that a test can kill, stop for a while, and send back in time."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.server_binary import server_binary

_START_TIMEOUT_S = 20.0


class Valkey:
    """One server, its socket and its files."""

    def __init__(self, *, appendonly: bool = True, appendfsync: str = "always", **options: object) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="hr-"))
        self.socket = str(self.home / "s")
        self._data = self.home / "data"
        self._data.mkdir()
        self._options: dict[str, object] = {
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": appendfsync,
            "save": "",
        }
        self.set_options(**options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> Valkey:
        line = [str(server_binary()), "--port", "0", "--unixsocket", self.socket, "--dir", str(self._data)]
        line += [word for name, value in self._options.items() for word in (f"--{name}", str(value))]
        self._process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while wait:
            try:
                with self.client() as client:
                    client.ping()
                    break
            except redis.AuthenticationError:
                break
            except (redis.ConnectionError, redis.BusyLoadingError):
                assert time.monotonic() < deadline, "the server did not start"
                assert self._process.poll() is None, "the server ended"
                time.sleep(0.002)
        return self

    def set_options(self, **options: object) -> None:
        """Options for the next start."""
        self._options |= {name.replace("_", "-"): value for name, value in options.items()}

    def kill(self) -> None:
        """SIGKILL, as a crash does it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            Path(self.socket).unlink(missing_ok=True)

    def pause(self) -> None:
        """The server hangs: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def checkpoint(self) -> Path:
        """A copy of the files as they are: what a later crash can fall back to."""
        copy = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self.home))
        shutil.copytree(self._data, copy, dirs_exist_ok=True)
        return copy

    def go_back_to(self, checkpoint: Path, *, start: bool = True) -> None:
        """A crash that loses all that was written since the checkpoint."""
        self.kill()
        shutil.rmtree(self._data)
        shutil.copytree(checkpoint, self._data)
        if start:
            self.start()

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket, retry=Retry(NoBackoff(), 0))

    def ask(self, *words: str | int | bytes) -> Any:
        """One command's reply, over a connection of its own."""
        with self.client() as client:
            return client.execute_command(*words)

    def stream(self, key: str) -> list[Any]:
        """Ids and fields of a stream."""
        rows: list[Any] = self.ask("XRANGE", key, "-", "+")
        return rows

    def keys_with(self, text: str) -> set[str]:
        """The keys that have this text in their name."""
        return {key.decode() for key in self.ask("KEYS", f"*{text}*")}

    def command_counts(self) -> dict[str, int]:
        """How often each command was run since the last reset."""
        facts = self.ask("INFO", "commandstats")
        return {name.removeprefix("cmdstat_"): int(fact["calls"]) for name, fact in facts.items()}

    def end(self) -> None:
        if self._process is not None:
            self.resume()
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
