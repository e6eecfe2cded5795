"""What is measured is what a user starts."""

from __future__ import annotations

from pathlib import Path

from bench.systems import broker_process

from tests.broker_process import BrokerProcess


def test_brokers_are_not_forked_even_where_those_of_the_tests_are(tmp_path: Path) -> None:
    assert BrokerProcess.is_forked
    assert not broker_process(tmp_path / "broker").is_forked
