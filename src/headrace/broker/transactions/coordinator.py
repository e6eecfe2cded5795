"""The transaction coordinator: the handlers' interface to transactional ids.

An id belongs to one node, which decides about it; any node may add to a transaction (`joining.py`). Before a request is
decided the open transaction is read, and if somebody adds to it meanwhile, everything is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.groups.kind import coordinator_error
from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.broker.owned.upkeep import OwnedUpkeep
from headrace.broker.transactions.finishing import Finisher, wait_for
from headrace.broker.transactions.joining import Joining, Producing
from headrace.broker.transactions.kind import MOVED, TransactionKind
from headrace.broker.transactions.opened import open_from
from headrace.broker.transactions.sweep import Sweep
from headrace.store.cluster.identity import ProducerIds
from headrace.store.cluster.owned.transactions import Parts, StoredOpen
from headrace.transactions.events import Answered, EndTxn, InitProducer, TxnRequest
from headrace.transactions.state import Open, TransactionalId
from headrace.transactions.table import TxnState
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_ATTEMPTS = 16
_FINISH_WAIT_S = 0.5
"""The answer to EndTxn waits so long for the markers: a producer that goes on at once is then not told to wait."""


class Shown(NamedTuple):
    """An id as people see it."""

    known: TransactionalId
    seen: Open | None

    @property
    def state(self) -> TxnState:
        return self.known.shown(self.seen)

    @property
    def is_open(self) -> bool:
        return self.state is TxnState.ONGOING or self.known.is_prepared

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """The partitions of the open or ending transaction: topic ids and numbers."""
        if self.state is TxnState.ONGOING and self.seen is not None:
            return self.seen.partitions
        return self.known.ending.partitions if self.known.is_prepared and self.known.ending is not None else ()

    @property
    def start_ms(self) -> int:
        """When the open transaction began."""
        if self.state is TxnState.ONGOING and self.seen is not None:
            return self.seen.start_ms
        return self.known.ending.start_ms if self.known.ending is not None else -1


class TransactionCoordinator:
    """The transactional ids of this node."""

    def __init__(self, store: Store, producer_ids: ProducerIds) -> None:
        self._store = store
        self._producer_ids = producer_ids
        self._has_warned = False
        self.now_ms = store.clock.steady_ms
        self._ids: Runtime[TransactionalId] = Runtime(store, store.transactions, TransactionKind(), self.now_ms)
        self._upkeep = OwnedUpkeep(self._ids)
        self._joining = Joining(store)
        self._finisher = Finisher(store, self._ids)
        self._sweep = Sweep(store, self._ids, self._finisher)

    def start(self) -> None:
        """Loads the stored ids and looks after them, in the background."""
        self._store.nodes.on_change.append(self._upkeep.wake)
        self._store.spawn(self._upkeep.run())
        self._store.spawn(self._sweep.run())

    def stop(self) -> None:
        self._finisher.stop()
        self._ids.close()

    def let_go(self) -> None:
        """Gives up the ids that are other nodes' by now."""
        self._upkeep.let_go_what_moved()

    async def leave_lost(self, patience_s: float) -> None:
        """Writes back what the store may have lost, before the node stops."""
        await self._ids.leave_lost(patience_s)

    # -- requests -----------------------------------------------------------------------------------------------

    async def init_producer(self, org: str, name: str, timeout_ms: int, producer: tuple[int, int]) -> Answered:
        """A producer takes the id."""
        self._warn_of_several_servers(name)

        def event(seen: Open | None, owner: str) -> InitProducer:
            return InitProducer(
                token=asyncio.get_running_loop().create_future(),
                seen=seen,
                owner=owner,
                new_producer_id=self._new_producer_id(),
                timeout_ms=timeout_ms,
                server=self._store.transactions.server,
                producer_id=producer[0],
                epoch=producer[1],
            )

        return await self._decide(Name(org, name), event)

    async def end(self, org: str, name: str, producer: tuple[int, int], *, commit: bool, version: int) -> Answered:
        """Ends the open transaction; returns when that is decided, if all goes well when it is finished."""

        def event(seen: Open | None, owner: str) -> EndTxn:
            return EndTxn(
                token=asyncio.get_running_loop().create_future(),
                seen=seen,
                owner=owner,
                new_producer_id=self._new_producer_id(),
                producer_id=producer[0],
                epoch=producer[1],
                commit=commit,
                version=version,
            )

        return await self._decide(Name(org, name), event)

    async def add(
        self, org: str, name: str, producer: tuple[int, int], parts: Parts, *, only_check: bool = False
    ) -> ErrorCode:
        """Adds to the open transaction, asked for by a client.

        Any node does, for clients that do not know the id's new owner yet, and a transaction that is being finished is
        waited for: after a refusal librdkafka may abort what was never begun, and the answer, 48 as Kafka's, is fatal
        to it. Only the owner refuses.
        """
        try:
            who = Producing(org, name, *producer)
            added = await self._joining.add_patiently(who, parts, only_check=only_check)
            if added.error:
                self._ids.check_owner(Name(org, name))
            if added.error is ErrorCode.PRODUCER_FENCED and await self._was_interrupted(Name(org, name), producer):
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        except KafkaError as error:
            return coordinator_error(error)
        return added.error

    async def _was_interrupted(self, name: Name, producer: tuple[int, int]) -> bool:
        """Whether a producer was fenced only because of the store: clients then abort and continue.

        The store may have it before we know: the fence is still being confirmed, or was another node's.
        """
        thing = await self._ids.look(name)
        return thing.state is not None and thing.state.was_interrupted(*producer)

    def _warn_of_several_servers(self, name: str) -> None:
        """Once: servers that lose their last second each for itself can tear a transaction."""
        if not self._has_warned and self._store.topology.address.form == "cluster":
            self._has_warned = True
            log.warning(
                "transactions on a Redis Cluster hold only if every server has appendfsync always, and no failover "
                "loses writes: docs/behaviour.md",
                extra={"transactional_id": name},
            )

    def _new_producer_id(self) -> int:
        return self._producer_ids.new(self._store.clock.wall_ms())

    async def _decide(self, name: Name, make: Callable[[Open | None, str], TxnRequest]) -> Answered:
        for _ in range(_ATTEMPTS):
            try:
                if not await self._has_finished(name):
                    break
                seen = await self._open_of(name)
            except KafkaError as error:
                answer: Answered = self._ids.kind.refusal(None, error)
                return answer
            thing = self._ids.things.get(name)
            request = make(seen, thing.owner if thing is not None else "")
            token = request.token
            assert isinstance(token, asyncio.Future)
            self._ids.ask(name, request, token)
            answer = await token
            if answer is not MOVED:
                if (thing := self._ids.things.get(name)) is not None and not answer.error:
                    await wait_for(self._finisher.start(thing), _FINISH_WAIT_S)
                elif thing is not None:
                    self._finisher.start(thing)
                return answer
        return Answered(ErrorCode.CONCURRENT_TRANSACTIONS)

    async def _has_finished(self, name: Name) -> bool:
        """Repairs what the last outcome may have lost, before the next one is decided and its parts are forgotten."""
        self._ids.check_owner(name)
        thing = self._ids.things.get(name)
        if thing is None or thing.state is None:
            thing = await self._ids.look(name)
        known, server = thing.state, self._store.transactions.server
        if known is None or (known.is_prepared and not known.may_have_lost(server)):
            return True
        await wait_for(self._finisher.start(thing), _FINISH_WAIT_S)
        known = thing.state  # it may have been let go meanwhile
        return known is not None and not known.is_unfinished(self._store.transactions.server)

    async def _open_of(self, name: Name) -> Open | None:
        """The open transaction; if the store may have lost part of it, it is aborted first."""
        self._ids.check_owner(name)
        stored = await self._store.transactions.opened(*name)
        if stored is None:
            return None
        if stored.server != self._store.transactions.server:
            thing = await self._ids.look(name)
            known = thing.state
            if known is not None and not known.is_prepared and stored.number == known.number + 1:
                await self._finisher.end_lost(name, stored, (known.producer_id, known.epoch))
            return None
        return open_from(stored)

    def ids_of(self, org: str) -> list[str]:
        """The ids that this node has in memory."""
        return [name.id for name in self._ids.things if name.org == org]

    @property
    def finished(self) -> Counter[str]:
        """How many transactions this node finished, by outcome."""
        return self._finisher.finished

    # -- for people ---------------------------------------------------------------------------------------------

    async def find(self, org: str, name: str) -> Shown | None:
        """An id for looking at; None if there is none."""
        thing = await self._ids.look(Name(org, name))
        if thing.state is None:
            return None
        stored = await self._store.transactions.opened(org, name)
        return _shown(thing, stored)

    async def all(self, org: str) -> tuple[list[Shown], ErrorCode]:
        """The ids of this node, and an error if some cannot be known now."""
        found, trouble = await self._ids.look_at_known(org)
        known = [thing for thing in found if thing.state is not None]
        there = [thing for thing in known if thing.link.is_up]
        opened = await self._store.transactions.opened_many(org, [thing.name.id for thing in there])
        shown = [_shown(thing, stored) for thing, stored in zip(there, opened, strict=True) if thing.state is not None]
        is_all = trouble is None and len(there) == len(known)
        return shown, ErrorCode.NONE if is_all else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _shown(thing: Thing[TransactionalId], stored: StoredOpen | None) -> Shown:
    assert thing.state is not None
    return Shown(thing.state, open_from(stored) if stored is not None else None)
