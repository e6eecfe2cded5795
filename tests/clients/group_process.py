"""A group member as a process of its own, which a test can kill or stop for a while.

`python -m tests.clients.group_process '{...}'` works until its standard input ends and prints what happens, a line of
JSON each; `MemberProcess` is the test's end of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from signal import Signals
from typing import Any

from tests.clients.group_member import MEMBERS, Place, work


class Diary:
    """What a member told, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Any]] = []
        self._lock = threading.Lock()

    def note(self, what: str, particulars: Any) -> None:
        with self._lock:
            self.entries.append((what, particulars))

    def _all(self, what: str) -> list[Any]:
        with self._lock:
            return [particulars for kind, particulars in self.entries if kind == what]

    @property
    def processed(self) -> list[Place]:
        return [Place(*place) for places in self._all("processed") for place in places]

    @property
    def committed(self) -> set[Place]:
        """Records that a successful commit covers."""
        return {Place(*place) for places in self._all("committed") for place in places}

    @property
    def failures(self) -> list[str]:
        return self._all("failed")

    @property
    def rebalances(self) -> int:
        return len(self._all("assigned")) + len(self._all("revoked"))

    @property
    def assigned(self) -> set[int]:
        """The partitions that it has now; an eager client is given all of them anew, a cooperative one what is new."""
        now: set[int] = set()
        with self._lock:
            for what, particulars in self.entries:
                if what == "assigned":
                    now |= set(particulars)
                elif what == "revoked":
                    now -= set(particulars)
        return now


class MemberThread(Diary):
    """A member at work in a thread."""

    def __init__(
        self, client: str, address: str, group: str, topic: str, settings: Mapping[str, Any], *, commits: bool = True
    ) -> None:
        super().__init__()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=lambda: work(
                MEMBERS[client](address, group, topic, settings, self.note), self._stop.is_set, commits=commits
            ),
            daemon=True,
        )
        self._thread.start()

    @property
    def is_working(self) -> bool:
        return self._thread.is_alive()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        """Leaves the group as a well-behaved consumer does."""
        self._stop.set()
        self._thread.join(60)
        assert not self.is_working, "the client did not close"


class MemberProcess(Diary):
    """A member at work in a process."""

    def __init__(
        self, client: str, address: str, group: str, topic: str, settings: Mapping[str, Any], *, commits: bool = True
    ) -> None:
        super().__init__()
        described = json.dumps([client, address, group, topic, dict(settings), commits])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.group_process", described],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.note(*json.loads(line))

    def send_signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: it says goodbye to nobody."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Leaves the group as a well-behaved consumer does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._process.wait(60)
        self._reader.join(60)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def main() -> None:
    client, address, group, topic, settings, commits = json.loads(sys.argv[1])
    is_over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()

    speaking = threading.Lock()

    def say(what: str, particulars: Any) -> None:
        with speaking:  # a client's own threads speak too, and a line must stay whole
            print(json.dumps([what, particulars]), flush=True)

    work(MEMBERS[client](address, group, topic, settings, say), is_over.is_set, commits=commits)


if __name__ == "__main__":
    main()
