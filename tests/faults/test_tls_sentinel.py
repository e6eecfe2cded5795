"""Brokers behind sentinels that are reached over TLS alone, as their servers are: each side has users of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.faults.sentinel_load import SentinelLoad
from tests.tls_servers import TlsWatchedServers, has_tls


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_nothing_is_lost_behind_sentinels_with_tls(tmp_path: Path, start_broker: StartBroker) -> None:
    if not has_tls():
        pytest.skip("the server has no TLS: TEST_REDIS_SERVER names another one")
    faults = [
        SentinelLoad.kill_the_primary,
        SentinelLoad.fail_over,
        SentinelLoad.freeze_the_primary,
        SentinelLoad.lose_a_sentinel,
    ]
    servers = TlsWatchedServers(tmp_path)
    try:
        servers.start()
        SentinelLoad(servers, start_broker, seed=15).run(faults)
    finally:
        servers.stop()
