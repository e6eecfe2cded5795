"""The state of one transactional id. Plain data; a decision creates a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.transactions.table import PREPARED, TxnState

LAST_EPOCH = 32_767
EXHAUSTED_EPOCH = LAST_EPOCH - 1
"""A producer that has this epoch gets a new id with its next one."""
NO_PRODUCER = -1
NO_EPOCH = -1


class Open(msgspec.Struct, frozen=True):
    """A transaction that was begun, as it was seen in the store."""

    number: int
    start_ms: int
    partitions: tuple[tuple[str, int], ...] = ()
    """Topic id and number."""
    groups: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.partitions) + len(self.groups)


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The last verdict: what its markers say, and whom they go to."""

    number: int
    commit: bool
    producer_id: int
    epoch: int
    """Epoch in the markers."""
    version: int
    partitions: tuple[tuple[str, int], ...] = ()
    groups: tuple[str, ...] = ()
    start_ms: int = -1
    decided_by: str = ""
    """Token of the owner that decided it: under any other one its markers may be there, and the next transaction behind
    them."""


class TransactionalId(msgspec.Struct, frozen=True, kw_only=True):
    """One id."""

    id: str
    state: TxnState = TxnState.EMPTY
    """As its coordinator stored it: never Ongoing, which shows in what others added."""
    producer_id: int
    epoch: int
    last_epoch: int = NO_EPOCH
    """The one before, whose holder may not have heard of the current one."""
    previous_id: int = NO_PRODUCER
    """The producer id before this one, whose epochs were used up."""
    timeout_ms: int
    number: int = 0
    """Number of the last prepared transaction."""
    updated_ms: int
    ending: Ending | None = None
    marked: str = ""
    """The run of the servers that the last verdict was spread under, or the id made. Under another one, what was lost
    is spread again, and the producer is fenced: the store may have forgotten that it had begun a transaction."""
    interrupted: bool | None = None
    """Set while the current epoch is one that it was fenced with for such a reason: whether the verdict before that was
    a commit."""
    is_taken: bool = True
    """Whether a producer may have the current epoch."""
    writes: int = 0
    """Counts what was decided: no two writes are alike."""

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    def is_unfinished(self, server: str) -> bool:
        """Whether the last verdict has to be spread, for the first time or under another run of the servers."""
        return self.is_prepared or self.may_have_lost(server)

    def may_have_lost(self, server: str) -> bool:
        """Whether another run of the servers knows the id, which may have lost what came after the last verdict."""
        return self.marked not in ("", server)

    def was_interrupted(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer was fenced by nobody but the store."""
        return self.interrupted is not None and (self.producer_id, self.last_epoch) == (producer_id, epoch)

    @property
    def last_verdict(self) -> bool:
        """Whether the last transaction was committed."""
        return self.ending is not None and self.ending.commit

    def open_of(self, seen: Open | None) -> Open | None:
        """The transaction seen in the store, if it has not ended."""
        return seen if seen is not None and seen.number == self.number + 1 else None

    def shown(self, seen: Open | None) -> TxnState:
        """The state as clients know it."""
        return TxnState.ONGOING if not self.is_prepared and self.open_of(seen) is not None else self.state


class _Rest(msgspec.Struct, frozen=True):
    """The fields that no script reads."""

    last_epoch: int
    previous_id: int
    timeout_ms: int
    updated_ms: int
    ending: Ending | None
    interrupted: bool | None = None
    is_taken: bool = True


def to_fields(known: TransactionalId, expected: int) -> dict[str, Any]:
    """The document, and how many partitions and groups it was decided about; -1 if they do not matter."""
    return {
        "state": known.state.value,
        "pid": known.producer_id,
        "epoch": known.epoch,
        "number": known.number,
        "marked": known.marked,
        "rest": _Rest(
            known.last_epoch,
            known.previous_id,
            known.timeout_ms,
            known.updated_ms,
            known.ending,
            known.interrupted,
            known.is_taken,
        ),
        "guard": f"{known.writes} {expected}",
    }


def from_fields(name: str, fields: Mapping[str, Any]) -> TransactionalId:
    rest: _Rest = fields["rest"]
    return TransactionalId(
        id=name,
        state=TxnState(fields["state"]),
        producer_id=fields["pid"],
        epoch=fields["epoch"],
        last_epoch=rest.last_epoch,
        previous_id=rest.previous_id,
        timeout_ms=rest.timeout_ms,
        number=fields["number"],
        updated_ms=rest.updated_ms,
        ending=rest.ending,
        marked=fields.get("marked", ""),
        interrupted=rest.interrupted,
        is_taken=rest.is_taken,
        writes=int(fields["guard"].split(" ")[0]),
    )


def pack(value: Any) -> bytes:
    """A field as it is stored: numbers and words as scripts read them."""
    return str(value).encode() if isinstance(value, int | str) else msgspec.json.encode(value)


def unpack(field: str, raw: bytes) -> Any:
    """ValueError if it cannot be read."""
    if field == "rest":
        return msgspec.json.decode(raw, type=_Rest)
    return int(raw) if field in ("pid", "epoch", "number") else raw.decode()
