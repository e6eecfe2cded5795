"""What an endpoint of the API is: a row from which both the route and its description are made."""

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
    """A parameter in the query."""

    name: str
    kind: str
    """As JSON Schema names it: string, integer or boolean."""
    meaning: str
    required: bool = False


class ApiQuestion(msgspec.Struct, frozen=True):
    """One request: what it names, and on whose behalf."""

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
            raise bad(f"{name} is a number from {low} to {high}.")
        return int(given)

    def confirmed(self, name: str) -> None:
        """Whoever destroys something has typed its name."""
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
    """Refused when the console is read-only, and told in the audit log."""


class Done(msgspec.Struct, frozen=True):
    """That something was carried out."""

    done: bool = True


class PageOf(NamedTuple):
    """Which part of a list is shown."""

    first: int
    last: int
    page: int
    pages: int


def page_of(total: int, page: int, size: int) -> PageOf:
    """The rows of a page, from 1 on; a page behind the last one is the last one."""
    pages = max(1, -(-total // size))
    page = min(max(page, 1), pages)
    return PageOf((page - 1) * size, min(page * size, total), page, pages)
