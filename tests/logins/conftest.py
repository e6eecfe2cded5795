"""One secured broker for the tests of logins; each makes users and topics of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.logins.secured import SecuredBroker


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"), login_timeout_ms=4_000)
    try:
        yield broker.start()
    finally:
        broker.process.end()
