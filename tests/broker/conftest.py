"""What tests with hostile peers share: the good client beside them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.broker.peers import Bystander
from tests.broker_process import BrokerProcess


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    """A good client of the shared broker; the test fails if anything disturbs it."""
    with Bystander(broker, f"bystander-{uuid4().hex[:8]}") as found:
        yield found
