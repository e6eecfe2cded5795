"""The contract between the runtime, a machine, and a kind of owned thing.

A thing is a document and rows. The document is the machine's durable state: the machine returns all of it whenever it
has to be stored, and the runtime writes the fields that changed. Rows are many, small and written one by one: a group's
committed offsets. Both are written in one atomic step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from headrace.wire.errors import KafkaError

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)

Fields = Mapping[str, Any]
"""A document: field to value."""
Rows = Mapping[Any, Any]
"""Row to value; None removes it."""


class Name(NamedTuple):
    """The name of a thing: its organisation and id."""

    org: str
    id: str


class Decision(Protocol[State_co]):
    """The result of an event: claim, store (or delete), adopt state and timers, send the replies, in this order.

    If storing fails the decision is dropped: the old state stands, whoever is parked there stays parked, and the
    request that was being decided is refused.
    """

    @property
    def state(self) -> State_co | None: ...

    @property
    def is_durable(self) -> bool:
        """Whether document, rows or tombstone have to be stored before the answers leave."""

    @property
    def fields(self) -> Fields | None:
        """The whole document, if it has to be stored. Asked for once."""

    @property
    def rows(self) -> Rows:
        """Rows that change."""

    @property
    def tombstone(self) -> bool:
        """Delete the stored thing with its rows."""

    @property
    def claim(self) -> str | None:
        """A name that no other thing may have; claimed before anything is stored."""

    @property
    def replies(self) -> Sequence[tuple[Any, Any]]:
        """Tokens, which are futures here or act like one, and their answers."""

    @property
    def timers(self) -> Mapping[Any, int | None]:
        """Deadlines in ms of the runtime's clock; None cancels."""


class Machine(Protocol[State]):
    """Decides for one thing. Pure: it reads no clock and does not modify the state."""

    def decide(self, state: State | None, event: Any, now_ms: int) -> Decision[State]:
        """Decides an event; the state is None if there is no such thing."""

    def load(self, name: str, fields: Fields, now_ms: int) -> Decision[State]:
        """The thing as it was stored: a restart is a load and nothing else."""

    def resume(self, state: State | None, now_ms: int) -> Decision[State]:
        """Requests could not be answered for a while: timers must not expire because of it."""

    def unload(self, state: State | None, now_ms: int) -> Decision[State]:
        """Another node owns the thing now: tells all waiters."""

    def timers_fired(self, state: State | None, keys: Sequence[Any], now_ms: int) -> Decision[State]:
        """Deadlines have passed, earliest first. Every outcome sets or cancels each, so that none is due for ever."""

    def claim_refused(self, claim: str) -> None:
        """Another thing has the claimed name: the next decision claims another one."""


class Kind(Protocol[State]):
    """A kind of owned thing: how it is stored, and the side effects of storing."""

    title: str
    """For log lines: `group`."""

    def machine(self, name: Name) -> Machine[State]: ...

    def refusal(self, event: Any, error: KafkaError) -> Any:
        """The answer to a request that was not, or could not be, decided."""

    def pack_field(self, field: str, value: Any) -> bytes: ...

    def unpack_field(self, field: str, raw: bytes) -> Any:
        """ValueError if it cannot be read."""

    def row_field(self, row: Any) -> str: ...

    def pack_row(self, value: Any) -> bytes: ...

    def unpack_row(self, field: str, raw: bytes) -> tuple[Any, Any]:
        """ValueError if it cannot be read."""

    def is_recent(self, value: Any) -> bool:
        """Whether a store may have lost a row, because it was acknowledged only just."""

    def is_newer(self, value: Any, than: Any) -> bool:
        """Whether a recent row was acknowledged later than another value of it: it counts, whoever wrote it."""

    async def claim(self, name: Name, claimed: str) -> bool:
        """Claims a name for a listed thing; false if another thing has it."""

    async def give_back(self, name: Name, claimed: str) -> None:
        """The thing that had claimed this name is deleted."""

    def claimed(self, state: State) -> str | None:
        """The name that the thing has claimed."""

    async def before_rows_go(self, name: Name, rows: Iterable[Any]) -> None:
        """Called before rows are deleted, to remove their visible copies first."""

    def rows_stored(self, name: Name, rows: Rows) -> None:
        """Rows were stored."""

    def buried(self, name: Name, rows: Rows) -> None:
        """The thing was deleted, and these rows with it."""
