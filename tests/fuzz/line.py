"""A connection whose requests can be sent in pieces, and whose answers need not be waited for."""

from __future__ import annotations

import select

from headrace.client.connection import BrokerConnection, InFlight
from headrace.client.errors import BrokerUnreachable
from headrace.wire.frame import request_frame
from headrace.wire.schema import Payload
from tests.broker_process import BrokerProcess

CLOSED = "closed"
Answer = Payload | str
"""What the broker sent, or that it closed the connection."""


class Line(BrokerConnection):
    """One client's connection."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker.host, broker.port, 60.0, "fuzz")

    def frame_of(self, request: Payload, version: int, *, is_answered: bool = True) -> bytes:
        """The bytes of a request, which the caller sends."""
        self._last_correlation_id += 1
        asked = InFlight(request.api.key, version, self._last_correlation_id)
        if is_answered:
            self._asked.append(asked)
        return request_frame(request, version, asked.correlation_id, self.client_id)

    @property
    def has_answer(self) -> bool:
        """Whether something to read has arrived."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def next_answer(self) -> Answer:
        try:
            return self.receive()
        except BrokerUnreachable as error:
            if "did not answer" in str(error):
                raise
            return CLOSED
