"""A tiered topic as a person sees it at the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.broker_process import wait_until
from tests.cli.conftest import run_command
from tests.conftest import StartBroker
from tests.tiered import BROKER, TieredTopic


def test_describe_shows_what_is_where_and_why_it_stays(start_broker: StartBroker, tmp_path: Path, topic: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    broker = start_broker(lake=lake, **BROKER)
    tiered = TieredTopic(broker, lake, topic)
    tiered.fill(400)
    where = ("--bootstrap", broker.address)
    (found,) = run_command("topics", "describe", topic, "--json", *where).json
    (partition,) = found["tiering"]
    assert (partition["log_start"], partition["local_start"], partition["lake_end"]) == (0, 200, 200)
    shutil.rmtree(tiered.folder)
    wait_until(
        lambda: "There is no table" in run_command("topics", "describe", topic, *where).out,
        "describe does not say that the table is gone",
    )
    lines = run_command("topics", "describe", topic, *where).out.splitlines()
    heading = next(at for at, line in enumerate(lines) if "IN REDIS FROM" in line)
    assert lines[heading + 1].split() == ["0", "0", "200", "-"]
