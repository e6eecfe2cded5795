"""Apache Kafka's own producer and consumer group (Clients.java), in a process of their own, as witnesses."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from pathlib import Path

from bench.kafka import tool_command

from tests.faults.witnesses import Place, Receiving, Sending

_SOURCE = Path(__file__).with_name("Clients.java")
_STUCK_S = 90.0


class JavaClients:
    """The process, and what it says."""

    def __init__(self, addresses: str, places: list[Place], pause_s: float) -> None:
        self.sender, self.group = JavaSender(self, "java", places), JavaGroup(self, "java-group")
        topics = [f"{topic}={count}" for topic, count in Counter(topic for topic, _ in places).items()]
        words = [str(_SOURCE), addresses, str(round(pause_s * 1000)), self.sender.name, self.group.name, *topics]
        self._process = subprocess.Popen(
            tool_command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.sent_all = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="java")
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, *words = line.rstrip("\n").split(" ", 4)
            match kind:
                case "told":
                    self.sender.told[words[0], int(words[1])][int(words[2])] = int(words[3])
                case "got":
                    self.group.delivered[words[0], int(words[1])][int(words[2])] = words[3].encode()
                case "committed":
                    self.group.committed[words[0], int(words[1])] = int(words[2])
                case "assigned":
                    self.group.assignments += 1
                case "sent":
                    self.sender.sent = int(words[0])
                    self.sent_all.set()
                case "failed":
                    self.sender.failures.append(line)
                case _:
                    print(line)  # shown where something fails

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STUCK_S)
        finally:
            self._process.kill()
            self._thread.join()


class JavaSender(Sending):
    def __init__(self, clients: JavaClients, name: str, places: list[Place]) -> None:
        super().__init__(name, places)
        self._clients = clients

    def stop(self) -> None:
        if not self._clients.sent_all.is_set():
            self._clients.say("\n")
            assert self._clients.sent_all.wait(_STUCK_S), "the Java producer waits for answers"


class JavaGroup(Receiving):
    def __init__(self, clients: JavaClients, name: str) -> None:
        super().__init__(name)
        self._clients = clients

    def stop(self) -> None:
        self._clients.end()
