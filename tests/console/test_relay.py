"""Health of several nodes in one page: each is called by the id that logs and metadata show."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.console.relay import health_page


@pytest.mark.parametrize(
    ("first_id", "names"),
    [(0, ["node 0", "node 1"]), (10, ["node 10", "node 11"]), (-1, ["process 1 of 2", "process 2 of 2"])],
)
async def test_a_node_that_does_not_answer_is_named_as_elsewhere(
    first_id: int, names: list[str], tmp_path: Path
) -> None:
    sockets = tuple(str(tmp_path / f"{index}.sock") for index in range(2))
    page = await health_page(sockets, "/health/ready", first_id)
    missing = dict.fromkeys(names, "does not answer")
    assert msgspec.json.decode(page.body) == {"ready": False, "missing": missing}
