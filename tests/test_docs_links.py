"""Links between the pages lead somewhere: to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = (ROOT / "docs" / "decisions").glob("*.md")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SOURCE_FILE = re.compile(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


def links_in(page: Path) -> Iterator[tuple[str, str]]:
    """Path and anchor of each link that stays inside the repository."""
    for target in _LINK.findall(_CODE.sub("", page.read_text())):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield unquote(path), anchor


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = _HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    dead = []
    for path, anchor in links_in(page):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            dead.append(f"{path}#{anchor}" if anchor else path)
    assert dead == []


@pytest.mark.parametrize("page", ["docs/architecture.md", *sorted(f"docs/decisions/{page.name}" for page in DECISIONS)])
def test_source_files_that_a_page_names_exist(page: str) -> None:
    """A path may start at the root, at `src/headrace` or, as in a sentence about one folder, further inside."""
    known = [f"/{path.relative_to(ROOT)}" for path in (ROOT / "src" / "headrace").rglob("*")]
    named = {name.rstrip("/") for name in _SOURCE_FILE.findall((ROOT / page).read_text())}
    inside = {name for name in named if any(path.endswith(f"/{name}") for path in known)}
    assert {name for name in named - inside if not (ROOT / name).exists()} == set()
