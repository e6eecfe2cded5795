"""Each test with each client."""

from __future__ import annotations

import pytest

from tests.clients.adapters import CLIENTS
from tests.clients.client import Client


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found
