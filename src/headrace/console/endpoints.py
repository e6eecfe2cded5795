"""An endpoint of the API: a row that both the route and its description are generated from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.client import Cluster
from headrace.console.errors import bad

if TYPE_CHECKING:
    from headrace.console.state import ConsoleState
    from headrace.console.visitors import Visitor


class Param(NamedTuple):
    """A query parameter."""

    name: str
    kind: str
    """JSON Schema's type name: string, integer or boolean."""
    meaning: str
    required: bool = False


class ApiQuestion(msgspec.Struct, frozen=True):
    """One request: its parameters and its visitor."""

    path: dict[str, str]
    query: dict[str, str]
    body: Any
    state: ConsoleState
    visitor: Visitor

    def text(self, name: str) -> str:
        return self.query.get(name, "")

    def needed(self, name: str) -> str:
        if not (given := self.query.get(name, "")):
            raise bad(f"The parameter {name} is missing.")
        return given

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in ("1", "true")

    def number(self, name: str, default: int, low: int, high: int) -> int:
        given = self.query.get(name, "")
        if not given:
            return default
        if len(given) > 20 or not given.lstrip("-").isdecimal() or not low <= int(given) <= high:
            raise bad(f"{name} must be a number from {low} to {high}.")
        return int(given)

    def confirmed(self, name: str) -> None:
        """Destructive requests must repeat the resource's name."""
        if self.text("confirm") != name:
            raise bad("The typed name does not match.")


class ApiEndpoint(NamedTuple):
    """A row of the table."""

    method: str
    path: str
    summary: str
    run: Callable[[Cluster, ApiQuestion], Any]
    """Blocks, and runs in a thread."""
    answer: type
    params: tuple[Param, ...] = ()
    body: type | None = None
    changes: bool = False
    """Refused when the console is read-only, and recorded in the audit log."""


class Done(msgspec.Struct, frozen=True):
    """Success without data."""

    done: bool = True


class PageOf(NamedTuple):
    """One page of a list."""

    first: int
    last: int
    page: int
    pages: int


def page_of(total: int, page: int, size: int) -> PageOf:
    """The rows of a page, counted from 1; beyond the last page, the last one."""
    pages = max(1, -(-total // size))
    page = min(max(page, 1), pages)
    return PageOf((page - 1) * size, min(page * size, total), page, pages)
