"""A broker with its console, that the tests of a worker share, and a client for its API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest

from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.conftest import NO_RETENTION


@contextlib.contextmanager
def console_of(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """A client of a broker's console, once that answers."""
    with httpx.Client(base_url=f"http://127.0.0.1:{broker.settings['http_port']}", timeout=20) as client:

        def answers() -> bool:
            try:
                return client.get("/api/v1/session").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, "the console does not answer")
        yield client


@pytest.fixture(scope="session")
def with_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("console") / "data",
        http_port=free_port(),
        console=True,
        group_initial_rebalance_delay_ms=0,
        **NO_RETENTION,
    )
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(scope="session")
def console(with_console: BrokerProcess) -> Iterator[httpx.Client]:
    with console_of(with_console) as client:
        yield client
