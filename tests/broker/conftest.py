"""What tests of the broker share: a good client beside hostile ones, and administrative requests by hand."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.broker.administrator import Administrator
from tests.broker.peers import Bystander, connect
from tests.broker_process import BrokerProcess


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    """A good client of the shared broker; the test fails if anything disturbs it."""
    with Bystander(broker, f"bystander-{uuid4().hex[:8]}") as found:
        yield found


@pytest.fixture
def administrator(broker: BrokerProcess) -> Iterator[Administrator]:
    """Administrative requests to the shared broker."""
    with connect(broker) as connection:
        yield Administrator(connection)
