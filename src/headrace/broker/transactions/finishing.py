"""After the commit point: a marker in every partition, the outcome for every group, then Complete.

All of it can be repeated, so a new owner that finds a prepared transaction does everything again. Every listed
partition gets a marker, whether something is open there or not: it shows that a delayed first batch is late. Before a
marker is appended, and after the end of the log is known, the store confirms that this node still owns the id. If the
transaction may have been finished before, the partition is read, too: the next transaction may be behind its marker.

Once another server took over, markers may be lost though the verdict is not. So the last verdict of each id goes again
to the partitions that lack its marker, and until then the id's next transaction cannot begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.owned.contract import Name
from headrace.broker.owned.runtime import Runtime
from headrace.broker.owned.thing import Thing
from headrace.broker.transactions.opened import expire, open_from
from headrace.broker.transactions.verdicts import LatestVerdicts, first_due, places_of
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import from_kafka_uuid
from headrace.store.cluster.owned.transactions import StoredOpen
from headrace.store.lasting import Lasting
from headrace.store.partition.sequences.verification import Verification, moment_of
from headrace.store.redis.errors import PartitionGone
from headrace.transactions.events import Finished
from headrace.transactions.state import Ending, TransactionalId
from headrace.wire.batch import read_header
from headrace.wire.control import EndMarker, end_marker
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition
    from headrace.store.partition.pending import Appended
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_AT_ONCE = 64
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_MARKER_WAIT_S = 5.0


class Replaced(Exception):
    """The id is another node's, or this transaction has been finished."""


class _NotOurs(KafkaError):
    """By the word of the store, which is asked before each marker."""

    def __init__(self, state: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_COORDINATOR_FENCED, f"another node ended it: {state}")


class _IsMarked(KafkaError):
    """The marker is there."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, "the transaction has ended here")


class Finisher:
    """Finishes the prepared transactions of this node, each in a task of its own."""

    def __init__(self, store: Store, runtime: Runtime[TransactionalId]) -> None:
        self._store = store
        self._runtime = runtime
        self._tasks: dict[Name, asyncio.Task[None]] = {}
        self.finished: Counter[str] = Counter()
        """Transactions by their outcome."""
        self._verdicts = LatestVerdicts()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._postponed = Lasting(
            log, "finishing transactions is postponed", "finishing transactions is no longer postponed", logging.INFO
        )

    @property
    def _server(self) -> str:
        return self._store.transactions.server

    def start(self, thing: Thing[TransactionalId]) -> asyncio.Task[None] | None:
        """Starts finishing, unless it is in progress or not needed; returns the task."""
        name, known = thing.name, thing.state
        if name not in self._tasks and known is not None and known.is_unfinished(self._server):
            task = asyncio.create_task(self._finish(thing), name=f"finish {name.id}")
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._ended(name))
        return self._tasks.get(name)

    def _ended(self, name: Name) -> None:
        self._tasks.pop(name, None)
        self._postponed.over(name)

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _finish(self, thing: Thing[TransactionalId]) -> None:
        pause_s = _PAUSE_S
        while not thing.is_gone and thing.state is not None and thing.state.is_unfinished(server := self._server):
            ending, was_prepared, number = thing.state.ending, thing.state.is_prepared, thing.state.number
            try:
                if ending is not None:
                    if thing.state.may_have_lost(server):
                        await self._end_earlier(thing, ending)
                    await self.spread(thing, ending, again=not was_prepared)
                    self._verdicts.add(thing.name, ending)
                await self._mark_finished(thing, number, server)
                if was_prepared and ending is not None:
                    self.finished["commit" if ending.commit else "abort"] += 1
                return
            except Replaced:
                thing.doubt()  # if the id is still ours, its owner's token in the store is not: it is taken again
                await self._look_again(thing)
                return
            except KafkaError as error:
                self._postponed.met(thing.name, transactional_id=thing.name.id, why=str(error))
            except Exception:
                log.exception("finishing a transaction failed", extra={"transactional_id": thing.name.id})
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            await self._look_again(thing)

    async def _end_earlier(self, thing: Thing[TransactionalId], last: Ending) -> None:
        """Ends transactions before the last one where their markers were lost: the last marker would end them too."""
        earlier = self._verdicts.before(thing.name, last)
        for place in places_of(earlier):
            try:
                await self._end_earlier_at(place, thing, earlier, last)
            except KafkaError:
                if place in last.partitions:
                    raise
                # It may be away for long. Before the first batch of the next epoch its leader aborts what is open.

    async def _end_earlier_at(
        self, place: tuple[str, int], thing: Thing[TransactionalId], earlier: list[Ending], last: Ending
    ) -> None:
        organisation = self._store.organisations[thing.name.org]
        topic = await organisation.catalogue.find_uuid(from_kafka_uuid(place[0]))
        if topic is None:
            return
        try:
            partition = await organisation.partition(topic, place[1])
            partition.doubt()
            await partition.confirm()
        except PartitionGone:
            return
        due = first_due(earlier, place, partition.producers, last.producer_id)
        if due is None:
            return
        marks = _Marks(self._store, thing, due, again=True, last=last.number)
        async with self._turns:
            troubles = await marks.write((place,))
        if troubles:
            raise troubles[0]
        await marks.are_confirmed()
        extra = {"transactional_id": thing.name.id, "partition": repr(partition), "commit": due.commit}
        log.warning("the store lost the marker of an earlier transaction: it was written again", extra=extra)

    async def _look_again(self, thing: Thing[TransactionalId]) -> None:
        """After trouble, the id is taken anew: markers carry the number of its owner."""
        if not thing.is_gone and not thing.is_settled:
            with contextlib.suppress(KafkaError):
                await self._runtime.look(thing.name)

    async def _mark_finished(self, thing: Thing[TransactionalId], number: int, server: str) -> None:
        """Nobody adds to the next transaction until this is stored; what is open then was open under another run."""
        is_open = False
        if thing.state is not None and thing.state.may_have_lost(server):
            stored = await self._store.transactions.opened(*thing.name)
            is_open = stored is not None and stored.number == number + 1
        await self._runtime.look(thing.name, lambda _: Finished(number, server, is_open))

    async def end_lost(self, name: Name, stored: StoredOpen, producer: tuple[int, int]) -> Thing[TransactionalId]:
        """Ends a transaction that was open when another server took over, and of which something may be lost.

        If a marker says that it was committed, its prepare was lost and its markers were kept, on another server or in
        a node's memory: then it is committed everywhere. Else it is aborted.
        """
        commit = await self._was_committed(name, stored, *producer)
        thing = await expire(self._runtime, name, open_from(stored), commit=commit, is_lost=True)
        log.warning(
            "a transaction was open when another server took over: it is committed, as a marker says"
            if commit
            else "a transaction was open when another server took over: it is aborted, and its producer fenced",
            extra={"transactional_id": name.id, "partitions": len(stored.parts.partitions)},
        )
        self.start(thing)
        return thing

    async def _was_committed(self, name: Name, stored: StoredOpen, producer_id: int, epoch: int) -> bool:
        """By a marker that is none of an earlier epoch: the store may have given out the number twice."""
        organisation = self._store.organisations[name.org]
        for place in stored.parts.partitions:
            topic = await organisation.catalogue.find_uuid(from_kafka_uuid(place.topic_id))
            if topic is None:
                continue
            with contextlib.suppress(PartitionGone):
                partition = await organisation.partition(topic, place.number)
                partition.doubt()
                await partition.confirm()
                known = partition.producers.by_id.get(producer_id)
                if known is not None and known.epoch >= epoch and known.ended == stored.number and known.committed:
                    return True
        return False

    async def spread(self, thing: Thing[TransactionalId], ending: Ending, *, again: bool = False) -> None:
        """Gives all whom it concerns the verdict; raises the last trouble if some did not get it.

        Only some do so at once. Waiting for replicas is nobody's turn: it may last for as long as they are away.
        """
        marks = _Marks(self._store, thing, ending, again=again)
        troubles: list[BaseException] = []
        async with self._turns:
            for at in range(0, len(ending.partitions), _AT_ONCE):
                troubles += await marks.write(ending.partitions[at : at + _AT_ONCE])
        if troubles:
            raise next((trouble for trouble in troubles if isinstance(trouble, Replaced)), troubles[-1])
        await marks.are_confirmed()
        async with self._turns:
            for group_id in ending.groups:
                await self._store.transactions.give_verdict(
                    thing.name.org, group_id, ending.producer_id, ending.number, commit=ending.commit
                )


class _Marks:
    """The markers of one transaction."""

    def __init__(
        self, store: Store, thing: Thing[TransactionalId], ending: Ending, *, again: bool, last: int | None = None
    ) -> None:
        self._store = store
        self._organisation = store.organisations[thing.name.org]
        self._thing = thing
        self._ending = ending
        self._last = ending.number if last is None else last
        """Number of the id's last transaction, which may be a later one."""
        self._owner = thing.owner
        self._again = again or ending.decided_by != self._owner
        """Whether they may be there, and records of a later transaction behind them."""
        epoch = int(self._owner.split(".", 1)[0])
        self._marker = EndMarker(ending.commit, epoch, b"%d" % ending.number)
        self._appended: list[tuple[Partition, asyncio.Future[Appended]]] = []
        """Markers that this node appended, and that replicas may not have yet."""

    async def write(self, places: tuple[tuple[str, int], ...]) -> list[BaseException]:
        """Appends the markers; returns the errors."""
        found = [(place, await self._topic(place[0])) for place in places]
        work = [self._mark(topic, place[1]) for place, topic in found if topic is not None and not topic.is_stream]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        return [outcome for outcome in outcomes if outcome is not None]

    async def are_confirmed(self) -> None:
        """Returns once enough replicas have the markers."""
        for partition, appended in self._appended:
            with contextlib.suppress(PartitionGone):
                await partition.copies.until_confirmed(appended)

    async def _topic(self, topic_id: str) -> Topic | None:
        """None if it was deleted."""
        return await self._organisation.catalogue.find_uuid(from_kafka_uuid(topic_id))

    async def _mark(self, topic: Topic, number: int) -> None:
        ending = self._ending
        batch = end_marker(self._marker, ending.producer_id, ending.epoch, self._store.clock.wall_ms())
        try:
            if self._store.nodes.leader(topic, number) == self._store.nodes.me:
                await self._append(topic, number, batch)
            else:
                await self._organisation.append_elsewhere(topic, number, batch, partial(self._ask_of, topic, number))
        except (PartitionGone, _IsMarked):
            return
        except KafkaError as error:
            if isinstance(error, _NotOurs) or error.code == ErrorCode.NOT_COORDINATOR:
                raise Replaced from error
            if error.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                await self._outbid(topic, number)
            if error.code != ErrorCode.INVALID_PRODUCER_EPOCH:
                raise
            log.info(
                "a marker was late",
                extra={"partition": f"{topic.name}-{number}", "transactional_id": self._thing.name.id},
            )

    async def _append(self, topic: Topic, number: int, batch: bytes) -> None:
        """Through the queue of the partition, which this node leads."""
        partition = await self._organisation.partition(topic, number)
        await partition.confirm()
        ask = partial(self._ask_of, topic, number)
        verification = Verification(ask, marker=self._marker, exceeds=self._ending.version == 2)
        moment = moment_of(partition, self._ending.producer_id)
        await ask()
        verification.answered(moment)
        header = read_header(batch)
        writer, data = partition.writer, memoryview(bytearray(batch))
        appended = writer.submit(data, header, _MARKER_WAIT_S, verification=verification)
        await appended
        self._appended.append((partition, appended))

    async def _outbid(self, topic: Topic, number: int) -> None:
        """The id is ours, but the store forgot an owner with a higher number, whose marker the log has."""
        partition = await self._organisation.partition(topic, number)
        known = partition.producers.by_id.get(self._ending.producer_id)
        if known is not None:
            self._thing.outbid(known.coordinator_epoch)

    async def _ask_of(self, topic: Topic, number: int) -> None:
        """Whether a partition still needs the marker."""
        await self._ask()
        if self._again:
            partition = await self._organisation.partition(topic, number)
            partition.doubt()
            await partition.confirm()
            ending, producers = self._ending, partition.producers
            if producers.is_late(ending.producer_id, ending.epoch, ending.number):
                raise _IsMarked
            # A fence raises the epoch in its marker, which must not commit what is open behind the first one.
            if ending.commit and producers.has_ended(ending.producer_id, ending.number):
                raise _IsMarked

    async def _ask(self) -> None:
        """Whether the id is still ours, and the verdict has not been spread by another owner."""
        owner, state, number = await self._store.transactions.owner_and_state(*self._thing.name)
        if owner != self._owner or number != self._last:
            raise _NotOurs(state)


async def wait_for(task: asyncio.Task[None] | None, timeout_s: float) -> None:
    """Waits a while for a transaction to be finished, so that its producer need not ask again for the next one."""
    if task is not None:
        await asyncio.wait((task,), timeout=timeout_s)  # how it ends is not the producer's matter
