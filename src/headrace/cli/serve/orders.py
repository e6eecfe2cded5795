"""Messages between a supervisor and a node's process: lines of JSON over a socket pair.

A closed socket is a message, too: the other process is gone, whatever ended it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headrace.cli.settings.layers import load
from headrace.cli.settings.table import Settings

S = TypeVar("S", bound=msgspec.Struct)


class Orders(msgspec.Struct, frozen=True):
    """The first line, to the node: its settings, and the sockets it inherits at its first start."""

    values: dict[str, Any]
    descriptors: list[int]
    admin_password: str = ""
    """Not in the environment, where other processes of the same user could read it."""
    console_socket: str = ""
    """Socket for the console, which serves the HTTP port for the node."""

    @classmethod
    def of(cls, settings: Settings, descriptors: list[int], admin_password: str, console_socket: str = "") -> Orders:
        values = {name: getattr(settings, name) for name in Settings.__struct_fields__}
        if settings.listen:
            # `listen` already includes the listener that these two describe.
            del values["host"], values["port"]
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        return cls(plain, descriptors, admin_password, console_socket)

    @property
    def settings(self) -> Settings:
        return load(None, {}, self.values).settings


class Report(msgspec.Struct, frozen=True):
    """From the node: its id once it accepts connections, or the reason why it cannot start."""

    node_id: int = -1
    trouble: str = ""


def line_of(said: msgspec.Struct) -> bytes:
    return msgspec.json.encode(said) + b"\n"


def read_line(line: bytes, kind: type[S]) -> S:
    return msgspec.json.decode(line, type=kind)
