"""What a tool can see of a tidy house: files and functions that can be read in one sitting, and honest names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FOLDER_FILES_MAX = 20
BANNED_WORDS = ("util", "helper", "manager", "misc", "common")
"""Names that say nothing about what a thing is."""
LISTS = ("messages", "handlers")
"""Folders with one file per Kafka message or API: they are found by name, not read through."""


CLOCKED = ("wire", "groups", "store", "broker")
MEASURES = {
    "broker/network/requests.py",
    "broker/network/watchdog.py",
    "broker/fetching/straight.py",
    "broker/produce/straight.py",
    "broker/quotas/throttling.py",
    "store/redis/wire.py",
    "store/unpacking.py",
}
"""What measures how long work took: that is the machine's time, also in a test that moves the clock."""


def imported(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}


def sources() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.parent.name != "messages"]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX
    long = [node.name for node in functions(path) if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX]
    assert not long


def test_names_say_what_a_thing_is() -> None:
    names = {str(path.relative_to(SOURCE)): path.stem for path in sources()}
    for path in sources():
        nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))
        names |= {f"{path.relative_to(SOURCE)}:{node.name}": node.name for node in nodes}
    banned = [where for where, name in names.items() if any(word in name.lower() for word in BANNED_WORDS)]
    assert not banned


def test_a_name_means_one_thing() -> None:
    """Messages are left out: they have Kafka's names, which repeat there too."""
    homes: dict[str, list[str]] = {}
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert not {name: where for name, where in homes.items() if len(where) > 1}


def test_time_is_read_from_the_clock_that_was_handed_in() -> None:
    rooms = [SOURCE / "headrace" / room for room in CLOCKED]
    paths = (path for room in rooms for path in room.rglob("*.py"))
    readers = {str(path.relative_to(SOURCE / "headrace")) for path in paths if "time" in imported(path)}
    assert readers == MEASURES


def test_a_room_has_no_more_files_than_a_reader_can_hold() -> None:
    rooms = {path.parent for path in sources() if path.parent.name not in LISTS}
    crowded = {str(room.relative_to(SOURCE)): len(list(room.glob("*.py"))) for room in rooms}
    assert not {room: count for room, count in crowded.items() if count > FOLDER_FILES_MAX}


def test_every_module_says_which_rule_it_keeps() -> None:
    silent = [
        str(path.relative_to(SOURCE))
        for path in sources()
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == ["headrace/__init__.py"] or not silent
