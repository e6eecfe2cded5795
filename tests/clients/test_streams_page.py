"""The page of topics that Redis code shares does what it says, command by command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.stores import of_one_server

pytestmark = of_one_server  # the page is about the embedded server

PAGE = Path(__file__).parents[2] / "docs" / "streams.md"
HEADRACE = "from headrace.cli.main import main; main(prog_name='headrace')"
TIMEOUT_S = 60
CHANGING = re.compile(r"\d{13}-\d+|\d{1,3}(,\d{3})+|top_\w+")
"""Ids and numbers made of the time."""


@pytest.fixture
def broker(start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    """A broker whose data lie where `make run` puts them, beside the applications of the page."""
    started = start_broker()
    (tmp_path / "data").symlink_to(started.data_dir)
    return started


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def save_applications(page: str, folder: Path, address: str) -> None:
    """What the page says to save, with the address of this broker."""
    for name, code in re.findall(r"Save it as\s+`(\w+\.py)`:\n\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(code.replace("127.0.0.1:9092", address))


def run(line: str, folder: Path, address: str) -> str:
    """Runs a command of the page as a user would, and returns what it prints."""
    program, *arguments = line.split()
    command = [sys.executable, "-c", HEADRACE] if program.endswith("headrace") else [sys.executable]
    environment = os.environ | {"HEADRACE_BOOTSTRAP": address}
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_applications_of_the_page_print_what_it_shows(broker: BrokerProcess, tmp_path: Path) -> None:
    page = PAGE.read_text()
    save_applications(page, tmp_path, broker.address)
    compared = 0
    for line, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", "".join(blocks(page, "console")), re.MULTILINE):
        if " pip " in line or "/pip " in line:
            continue
        printed = run(line, tmp_path, broker.address)
        if shown:
            assert CHANGING.sub("#", printed).split() == CHANGING.sub("#", shown).split()
            compared += 1
    assert compared == 5
