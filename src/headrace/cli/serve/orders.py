"""What a supervisor and a node's process say to each other, a line of JSON at a time, over a socket that both hold.

That the socket closes says more than any line: the node's end, that the node is gone; the supervisor's, that nobody
looks after the node any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headrace.cli.settings.layers import load
from headrace.cli.settings.table import Settings

S = TypeVar("S", bound=msgspec.Struct)


class Orders(msgspec.Struct, frozen=True):
    """The first line, to the node: its settings, and the sockets that it inherits at its first start."""

    values: dict[str, Any]
    descriptors: list[int]
    admin_password: str = ""
    """Here and not in the environment, where other processes of the machine's user could read it."""
    console_socket: str = ""
    """Where the node answers the console that has the HTTP port in its place."""

    @classmethod
    def of(cls, settings: Settings, descriptors: list[int], admin_password: str, console_socket: str = "") -> Orders:
        values = {name: getattr(settings, name) for name in Settings.__struct_fields__}
        if settings.listen:
            # They stand for another listener where they are set beside `listen`, which has that one by now.
            del values["host"], values["port"]
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        return cls(plain, descriptors, admin_password, console_socket)

    @property
    def settings(self) -> Settings:
        return load(None, {}, self.values).settings


class Report(msgspec.Struct, frozen=True):
    """From the node: that it accepts connections, under which id; or the sentence that says why it cannot."""

    node_id: int = -1
    trouble: str = ""


def line_of(said: msgspec.Struct) -> bytes:
    return msgspec.json.encode(said) + b"\n"


def read_line(line: bytes, kind: type[S]) -> S:
    return msgspec.json.decode(line, type=kind)
