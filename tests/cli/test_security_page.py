"""The commands of docs/security.md do what the page says, as they stand, on a free port."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import free_port

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TIMEOUT_S = 60


def commands() -> list[tuple[str, str]]:
    """Each command of the walk through the page, and what it is said to print."""
    walk = PAGE.read_text().partition("## Ten minutes")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```console\n(.*?)^```$", walk, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page makes its certificates with openssl")
def test_ten_minutes_with_the_page(tmp_path: Path) -> None:
    port = str(free_port())
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    server: subprocess.Popen[str] | None = None
    count = 0
    try:
        for line, shown in commands():
            line, shown = line.replace("9093", port), shown.replace("9093", port)
            if line.startswith("export "):
                environ |= dict(pair.split("=", 1) for pair in line.split()[1:])
            elif line.startswith("headrace serve "):
                server = subprocess.Popen(
                    ["bash", "-c", f"exec {line}"], cwd=tmp_path, env=environ, text=True, stdout=subprocess.PIPE
                )
                assert server.stdout is not None
                assert server.stdout.readline() == shown
            else:
                ran = subprocess.run(
                    ["bash", "-c", line], cwd=tmp_path, env=environ, text=True, capture_output=True, timeout=TIMEOUT_S
                )
                assert ran.returncode == 0, (line, ran.stderr)
                assert all(words in ran.stdout for words in shown.split()), (line, ran.stdout)
            count += 1
        assert server is not None
        assert count >= 12
    finally:
        if server is not None:
            server.terminate()
            server.wait(TIMEOUT_S)
