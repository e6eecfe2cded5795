"""The generated modules are what the generator writes today, and the table of APIs says the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headrace.wire.apis import APIS, request_class, response_class, snake

ROOT = Path(__file__).parents[2]
MESSAGES = ROOT / "src/headrace/wire/messages"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_messages", ROOT / "tools/generate_messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_modules_are_current(generator: ModuleType) -> None:
    expected = generator.modules()
    present = {path.name: path.read_text() for path in MESSAGES.glob("*.py")}
    stale = sorted(name for name in expected.keys() | present.keys() if expected.get(name) != present.get(name))
    assert not stale, f"out of date: {', '.join(stale)}; run `make messages`"


def test_the_table_of_apis_is_the_generators(generator: ModuleType) -> None:
    assert {key: entry.name for key, entry in APIS.items()} == generator.APIS


@pytest.mark.parametrize("key", APIS)
def test_the_table_of_apis_agrees_with_the_generated_classes(key: int) -> None:
    entry = APIS[key]
    assert entry.key == key
    for cls, is_response in ((request_class(key), False), (response_class(key), True)):
        assert cls.api.key == key
        assert cls.api.name == entry.name
        assert cls.api.versions == (entry.oldest, entry.newest)
        assert cls.api.flexible_since == entry.flexible_since
        assert cls.api.response is is_response
        assert cls.__module__.rpartition(".")[2] == snake(entry.name)
