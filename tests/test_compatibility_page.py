"""The page that users plan by names exactly what the broker advertises."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.wire.apis import APIS

PAGE = Path(__file__).parent.parent / "docs/compatibility.md"


def test_the_table_of_apis_is_what_the_broker_speaks() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))? \|", PAGE.read_text(), re.MULTILINE)
    shown = {int(key): (name, int(first), int(last or first)) for key, name, first, last in rows}
    assert shown == {api.key: (api.name, api.oldest, api.newest) for api in APIS.values()}
