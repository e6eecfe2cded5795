"""Brokers for all tests: one that a worker's tests share, and a factory for those that need their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from tests.broker_process import BrokerProcess, RedisProcess
from tests.stores import broker_settings

# However busy the machine is: how long an example takes decides nothing.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("default"), max_examples=20)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

BrokerProcess.is_forked = True

StartBroker = Callable[..., BrokerProcess]
StartRedis = Callable[..., RedisProcess]


NO_RETENTION = {"retention_check_interval_ms": 86_400_000}
"""Many records of the tests have times of years ago: a broker that lives for minutes would delete them under a test."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with default settings that many tests use: each makes topics of its own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", **NO_RETENTION, **broker_settings())
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(scope="session")
def groups_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose groups form at once and whose sessions may be short; tests share it, with groups of their own."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("groups") / "data",
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=500,
        default_partitions=4,
        **NO_RETENTION,
        **broker_settings(),
    )
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts a broker with the settings given, each with a data directory of its own; all end with the test."""
    started: list[BrokerProcess] = []

    def start(**settings: object) -> BrokerProcess:
        of_store = {} if "redis" in settings else broker_settings()
        started.append(BrokerProcess(tmp_path / f"broker{len(started)}", **of_store, **settings))
        return started[-1].start()

    yield start
    for process in started:
        process.end()


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[StartRedis]:
    """Starts a Redis server of one's own; it ends with the test."""
    started: list[RedisProcess] = []

    def start(durability: str = "always") -> RedisProcess:
        started.append(RedisProcess(tmp_path / f"redis{len(started)}", durability))
        return started[-1].start()

    yield start
    for process in started:
        process.end()


@pytest.fixture
def group() -> str:
    """The id of a group that nobody has used before."""
    return f"group-{uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    """The name of a topic that nobody has used before."""
    return f"topic-{uuid4().hex[:12]}"
