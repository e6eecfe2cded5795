"""The events of a transactional id. Requests carry a token by which the broker knows the response it owes."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from headrace.transactions.state import NO_EPOCH, NO_PRODUCER, Open
from headrace.wire.errors import ErrorCode


class Answered(msgspec.Struct, frozen=True):
    """The answer to a request."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


class TxnRequest(msgspec.Struct, frozen=True, kw_only=True):
    token: Hashable
    seen: Open | None
    """The open transaction as it was read for this request."""
    new_producer_id: int
    """One that was never given out, should it be needed."""
    owner: str = ""
    """Token of the owner that decides."""


class InitProducer(TxnRequest, frozen=True, kw_only=True):
    timeout_ms: int
    server: str = ""
    """The run of the servers that the id is made under."""
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


class EndTxn(TxnRequest, frozen=True, kw_only=True):
    producer_id: int
    epoch: int
    commit: bool
    version: int
    """Version of the protocol: 1 or 2."""


class Expire(msgspec.Struct, frozen=True):
    """The open transaction has to go: its time is over, or the store may have lost some of it.

    One of which a marker says that it was committed had been prepared, and the store lost that: it is committed.
    """

    seen: Open
    commit: bool = False
    is_lost: bool = False
    """Whether it is ended because of what the store may have lost: perhaps that it was ended before."""
    owner: str = ""


class Finished(msgspec.Struct, frozen=True):
    """Every partition has its marker, every group its verdict, under one run of the servers."""

    number: int
    server: str = ""
    is_open: bool = False
    """Whether the transaction behind it is open in the store: it is ended on its own."""


class Forget(msgspec.Struct, frozen=True):
    """The id has not been used for long."""

    unused_since_ms: int


Event = InitProducer | EndTxn | Expire | Finished | Forget
