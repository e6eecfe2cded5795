"""One setting: its properties, and how its values are written."""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import Struct

from headrace.cli.quantities import show_size, show_time


class ValueKind(Enum):
    """How a setting's value is written; the enum value is its placeholder in help texts."""

    INTEGER = "INTEGER"
    SIZE = "SIZE"
    TIME = "TIME"
    SWITCH = "true|false"
    CHOICE = "CHOICE"
    TEXT = "TEXT"
    PATH = "PATH"
    LISTENERS = "LISTENER"


class Setting(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    kind: ValueKind
    section: str
    description: str
    default: Any
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "HEADRACE_" + self.name.upper()

    def show(self, value: Any) -> str:
        """The value as it could be written in a flag."""
        match self.kind:
            case ValueKind.SIZE:
                return show_size(value)
            case ValueKind.TIME:
                return show_time(value)
            case ValueKind.SWITCH:
                return "true" if value else "false"
            case ValueKind.LISTENERS:
                return " ".join(value)
            case _:
                return str(value)
