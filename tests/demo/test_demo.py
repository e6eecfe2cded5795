"""The demo, in small, as `make demo` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 900


@pytest.mark.faults
@pytest.mark.timeout(LIMIT_S)
def test_the_story_ends_with_numbers_that_agree(tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    command = [sys.executable, "-m", "demo", "--orders", "6000", "--plot", str(picture)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All numbers agree." in done.stdout
    assert "DOES NOT AGREE" not in done.stdout
    assert "<svg" in picture.read_text()
