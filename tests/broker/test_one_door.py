"""Topics and groups are reached through a caller's access alone: no handler can pass by a check that is made there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

BROKER = Path(__file__).parents[2] / "src/headrace/broker"
BEHIND_THE_DOOR = {
    "access.py": "the door itself",
    "broker.py": "makes the coordinator, and follows the brokers' own configs",
    "groups/coordinator.py": "what the door opens to: groups know which topics are still there",
    "groups/offsets_feed.py": "the same: appends to the topic of offsets",
    "groups/offsets_topic.py": "the same: writes commits of topics that are still there",
    "groups/retention.py": "the same, in the background",
    "rights/organisations.py": "organisations themselves, for who may administer all of them",
    "transactions/finishing.py": "writes markers into the partitions that a transaction was let into",
}
ORGANISATIONS = re.compile(r"\bstore\.(default|organisations|add_organisation|known_partition|groups)\b")
NAMES_ALONE = {
    "background.py",
    "logins/logins.py",
    "metrics/archive.py",
    "metrics/collect.py",
    "metrics/lag.py",
    "metrics/transactions.py",
    "owned/runtime.py",
}
"""They go through all organisations by name."""


def modules() -> list[Path]:
    return sorted(path for path in BROKER.rglob("*.py") if str(path.relative_to(BROKER)) not in BEHIND_THE_DOOR)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(BROKER)))
def test_nothing_else_touches_a_catalogue_an_organisation_or_the_coordinator(path: Path) -> None:
    touched = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
    expressions = [ast.unparse(node) for node in touched]
    if str(path.relative_to(BROKER)) in NAMES_ALONE:
        expressions = [one for one in expressions if not re.fullmatch(r"[\w.]*store\.organisations", one)]
    assert not [one for one in expressions if ORGANISATIONS.search(one)]
    banned = {"catalogue", "coordinator", "_organisation", "OwnedStore", "GroupStore"}
    if path.name == "call.py":
        banned.discard("_organisation")  # taken over from the connection's access
    assert not [one for one in expressions if banned & set(one.split("."))]


KEEPERS_OF_RIGHTS = {
    "access.py": "the door itself",
    "background.py": "adds up what organisations stored",
    "quotas/quotas.py": "counts by quotas and limits",
    "rights/authorizer.py": "decides by the rules",
    "rights/organisations.py": "organisations themselves, for who may administer all of them",
}


@pytest.mark.parametrize("path", sorted(BROKER.rglob("*.py")), ids=lambda path: str(path.relative_to(BROKER)))
def test_rules_quotas_and_organisations_have_few_keepers(path: Path) -> None:
    touched = [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
    keeps = [one for one in touched if re.search(r"\bstore\.(acls|quotas|tenants|usage)\b", one)]
    assert not keeps or str(path.relative_to(BROKER)) in KEEPERS_OF_RIGHTS


def test_every_exception_is_still_there() -> None:
    assert not [name for name in [*BEHIND_THE_DOOR, *NAMES_ALONE, *KEEPERS_OF_RIGHTS] if not (BROKER / name).exists()]
