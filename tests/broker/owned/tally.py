"""The smallest machine that uses all of the runtime: a tally that is added to, read, and ends when nobody adds.

Its document is a total and a note; its rows say who added how much last; its claim is a name that no other tally has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec

from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.store.cluster.owned.things import OwnedKeys, OwnedStore
from headrace.store.store import Store
from headrace.wire.errors import KafkaError

IDLE_MS = 60_000


class Tally(NamedTuple):
    total: int
    note: str
    waiting: tuple[Any, ...] = ()


class Add(NamedTuple):
    token: Any
    who: str
    number: int


class Strike(NamedTuple):
    """Removes a row."""

    token: Any
    who: str


class Read(NamedTuple):
    token: Any


class Wait(NamedTuple):
    """Answered by the next Add."""

    token: Any


class End(NamedTuple):
    token: Any


class Decision(NamedTuple):
    state: Tally | None
    fields: Mapping[str, Any] | None = None
    rows: Mapping[str, int | None] = {}
    tombstone: bool = False
    claim: str | None = None
    replies: tuple[tuple[Any, Any], ...] = ()
    timers: Mapping[str, int | None] = {}

    @property
    def is_durable(self) -> bool:
        return self.fields is not None or self.tombstone or bool(self.rows)


class TallyMachine:
    def __init__(self) -> None:
        self.decided: list[Any] = []
        self._refused: set[str] = set()

    def decide(self, state: Tally | None, event: Any, now_ms: int) -> Decision:
        self.decided.append(event)
        match event:
            case Add(token, who, number):
                return self._add(state, token, who, number, now_ms)
            case Strike(token, who):
                return Decision(state, rows={who: None}, replies=((token, "struck"),))
            case Read(token):
                return Decision(state, replies=((token, state.total if state else None),))
            case Wait(token):
                assert state is not None
                return Decision(state._replace(waiting=(*state.waiting, token)))
            case End(token):
                return Decision(None, tombstone=True, replies=((token, "ended"),), timers={"idle": None})
        raise TypeError(event)

    def _add(self, state: Tally | None, token: Any, who: str, number: int, now_ms: int) -> Decision:
        note = state.note if state else next(name for name in map(str, count(1)) if name not in self._refused)
        after = Tally((state.total if state else 0) + number, note)
        replies = ((token, after.total), *((waiting, after.total) for waiting in (state.waiting if state else ())))
        return Decision(
            after,
            fields={"total": after.total, "note": note},
            rows={who: number},
            claim=None if state else note,
            replies=replies,
            timers={"idle": now_ms + IDLE_MS},
        )

    def load(self, name: str, fields: Mapping[str, Any], now_ms: int) -> Decision:
        return Decision(Tally(fields["total"], fields["note"]), timers={"idle": now_ms + IDLE_MS})

    def resume(self, state: Tally | None, now_ms: int) -> Decision:
        return Decision(state, timers={"idle": now_ms + IDLE_MS})

    def unload(self, state: Tally | None, now_ms: int) -> Decision:
        return Decision(None, replies=tuple((token, "moved") for token in (state.waiting if state else ())))

    def timers_fired(self, state: Tally | None, keys: Sequence[str], now_ms: int) -> Decision:
        return Decision(None, tombstone=True, timers=dict.fromkeys(keys))

    def claim_refused(self, claim: str) -> None:
        self._refused.add(claim)


class TallyKind:
    title = "tally"

    def __init__(self) -> None:
        self.machines: dict[str, TallyMachine] = {}
        self.claims: dict[str, Name] = {}
        self.gone_rows: list[str] = []

    def machine(self, name: Name) -> TallyMachine:
        return self.machines.setdefault(name.id, TallyMachine())

    def refusal(self, event: Any, error: KafkaError) -> str:
        return f"refused with {error.code}"

    def pack_field(self, field: str, value: Any) -> bytes:
        return msgspec.json.encode(value)

    def unpack_field(self, field: str, raw: bytes) -> Any:
        return msgspec.json.decode(raw)

    def row_field(self, row: str) -> str:
        return row

    def pack_row(self, value: int) -> bytes:
        return b"%d" % value

    def unpack_row(self, field: str, raw: bytes) -> tuple[str, int]:
        return field, int(raw)

    def is_recent(self, value: int) -> bool:
        return True

    def is_newer(self, value: int, than: int) -> bool:
        return value > than

    async def claim(self, name: Name, claimed: str) -> bool:
        return self.claims.setdefault(claimed, name) == name

    async def give_back(self, name: Name, claimed: str) -> None:
        del self.claims[claimed]

    def claimed(self, state: Tally) -> str:
        return state.note

    async def before_rows_go(self, name: Name, rows: Iterable[str]) -> None:
        self.gone_rows += rows

    def rows_stored(self, name: Name, rows: Mapping[str, int | None]) -> None:
        pass

    def buried(self, name: Name, rows: Mapping[str, int]) -> None:
        pass


class Tallies:
    """The tallies of one node, on a clock that a test moves."""

    def __init__(self, store: Store, kind: TallyKind | None = None) -> None:
        self.kind = kind or TallyKind()
        self.clock_ms = 1_000_000
        keys = OwnedKeys(
            listing=lambda org: f"t:{org}:tallies",
            document=lambda org, name: f"t:{org}:{{{name}}}:tally",
            rows=lambda org, name: f"t:{org}:{{{name}}}:rows",
        )
        stored = OwnedStore(store.topology, keys)
        self.runtime: Runtime[Tally] = Runtime(store, stored, self.kind, lambda: self.clock_ms)

    def ask(self, name: str, event: type, *arguments: Any) -> asyncio.Future[Any]:
        token: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.runtime.ask(Name("default", name), event(token, *arguments), token)
        return token
