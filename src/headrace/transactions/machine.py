"""The entry point: one event, one decision. `table.py` says what is answered; this is what is done.

The caller writes `fields` under the coordinator's token, and only if the transaction still has the contents that the
event was decided on; otherwise it reads and decides again. Then it adopts the state and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from headrace.transactions import events
from headrace.transactions.events import Answered
from headrace.transactions.state import (
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    Ending,
    Open,
    TransactionalId,
    from_fields,
    to_fields,
)
from headrace.transactions.table import END_TXN, INIT_PRODUCER_ID, Doing, TxnState, TxnTrigger, next_state
from headrace.wire.errors import ErrorCode

_ANY = -1
_MARGIN = 1_000
"""So many epochs the store may have given out, and forgotten: a fence because of that leaves them all behind."""


class TxnDecision(NamedTuple):
    """The result of an event."""

    state: TransactionalId | None
    fields: Mapping[str, Any] | None = None
    tombstone: bool = False
    replies: tuple[tuple[Hashable, Answered], ...] = ()
    timers: Mapping[Any, int | None] = {}
    rows: Mapping[Any, Any] = {}
    claim: str | None = None

    @property
    def is_durable(self) -> bool:
        return self.fields is not None or self.tombstone


class TransactionMachine:
    """Decides for one transactional id."""

    def __init__(self, name: str) -> None:
        self._name = name

    def decide(self, known: TransactionalId | None, event: events.Event, now_ms: int) -> TxnDecision:
        return _HANDLERS[type(event)](self._name, known, event, now_ms)

    def load(self, name: str, fields: Mapping[str, Any], now_ms: int) -> TxnDecision:
        return TxnDecision(from_fields(name, fields))

    def resume(self, known: TransactionalId | None, now_ms: int) -> TxnDecision:
        return TxnDecision(known)

    def unload(self, known: TransactionalId | None, now_ms: int) -> TxnDecision:
        return TxnDecision(None)

    def timers_fired(self, known: TransactionalId | None, keys: Sequence[Any], now_ms: int) -> TxnDecision:
        return TxnDecision(known, timers=dict.fromkeys(keys))

    def claim_refused(self, claim: str) -> None:
        """Nothing is claimed."""


def _answered(known: TransactionalId | None, event: events.TxnRequest, error: ErrorCode) -> TxnDecision:
    return TxnDecision(known, replies=((event.token, Answered(error)),))


def _stored(known: TransactionalId, expected: int, *replies: tuple[Hashable, Answered]) -> TxnDecision:
    known = replace(known, writes=known.writes + 1)
    return TxnDecision(known, to_fields(known, expected), replies=replies)


def _size(open_now: Open | None) -> int:
    return open_now.size if open_now is not None else 0


# -- InitProducerId -------------------------------------------------------------------------------------------------


def _init(name: str, known: TransactionalId | None, event: events.InitProducer, now_ms: int) -> TxnDecision:
    if known is None:
        new = TransactionalId(
            id=name,
            producer_id=event.new_producer_id,
            epoch=0,
            timeout_ms=event.timeout_ms,
            updated_ms=now_ms,
            marked=event.server,
        )
        return _stored(new, 0, (event.token, Answered(ErrorCode.NONE, new.producer_id, new.epoch)))
    answer = INIT_PRODUCER_ID[known.shown(event.seen)]
    if answer is ErrorCode.CONCURRENT_TRANSACTIONS:  # before who asks: it may be on its next producer id already
        return _answered(known, event, answer)
    if event.producer_id != NO_PRODUCER and not _is_its_producer(known, event):
        return _answered(known, event, ErrorCode.PRODUCER_FENCED)
    if answer is Doing.FENCE:
        open_now = known.open_of(event.seen)
        assert open_now is not None
        reply = event.token, Answered(ErrorCode.CONCURRENT_TRANSACTIONS)
        return _stored(_fenced(known, open_now, now_ms, event.owner), open_now.size, reply)
    return _raise_epoch(known, event, now_ms)


def _is_its_producer(known: TransactionalId, event: events.InitProducer) -> bool:
    is_previous = event.producer_id == known.previous_id and event.epoch >= EXHAUSTED_EPOCH
    return event.producer_id == known.producer_id or is_previous


def _raise_epoch(known: TransactionalId, event: events.InitProducer, now_ms: int) -> TxnDecision:
    """The next epoch; the same answer again, if the one who asks has the epoch before."""
    if event.producer_id != NO_PRODUCER:
        current = event.producer_id == known.producer_id and event.epoch == known.epoch
        if not current and event.epoch == known.last_epoch:
            return _repeat_epoch(known, event, now_ms)
        if not current:
            return _answered(known, event, ErrorCode.PRODUCER_FENCED)
    last_epoch = known.epoch if event.producer_id != NO_PRODUCER else NO_EPOCH
    raised = replace(
        known,
        state=next_state(known.state, TxnTrigger.INITIALISED),
        timeout_ms=event.timeout_ms,
        last_epoch=last_epoch,
        updated_ms=now_ms,
        interrupted=None,
        is_taken=True,
    )
    if known.epoch >= EXHAUSTED_EPOCH:
        raised = replace(raised, producer_id=event.new_producer_id, epoch=0, previous_id=known.producer_id)
    else:
        raised = replace(raised, epoch=known.epoch + 1)
    return _stored(raised, 0, (event.token, Answered(ErrorCode.NONE, raised.producer_id, raised.epoch)))


def _repeat_epoch(known: TransactionalId, event: events.InitProducer, now_ms: int) -> TxnDecision:
    """The epoch was raised for the one who asks, by a request whose answer it did not hear, or by a fence."""
    reply = event.token, Answered(ErrorCode.NONE, known.producer_id, known.epoch)
    state = next_state(known.state, TxnTrigger.INITIALISED)
    begun = replace(known, state=state, timeout_ms=event.timeout_ms, interrupted=None, is_taken=True)
    return (
        TxnDecision(known, replies=(reply,)) if begun == known else _stored(replace(begun, updated_ms=now_ms), 0, reply)
    )


# -- ending a transaction -------------------------------------------------------------------------------------------


def _end(name: str, known: TransactionalId | None, event: events.EndTxn, now_ms: int) -> TxnDecision:
    if known is None:
        return _answered(None, event, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    overflown = (
        event.version == 2
        and event.producer_id == known.previous_id
        and event.epoch == EXHAUSTED_EPOCH
        and known.epoch == 0
    )
    if event.producer_id != known.producer_id and not overflown:
        return _answered(known, event, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if event.version == 2 and event.commit is known.interrupted and event.epoch == known.last_epoch - 1:
        return _repeat_end(known, event)
    is_last = event.epoch == known.epoch - 1 or known.was_interrupted(event.producer_id, event.epoch)
    is_retry = overflown or (event.version == 2 and is_last)
    if event.epoch != known.epoch and not is_retry:
        # Told this, a client takes its id again. A commit may be the one that was made before: it stays fatal.
        may_go_on = known.was_interrupted(event.producer_id, event.epoch) and not event.commit
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING if may_go_on else ErrorCode.PRODUCER_FENCED
        return _answered(known, event, error)
    open_now = known.open_of(event.seen)
    if known.is_prepared and open_now is not None:
        # It was begun when the last one was finished. The store lost that, or its owner never learned of it.
        return _answered(known, event, ErrorCode.CONCURRENT_TRANSACTIONS)
    answer = END_TXN[event.version, event.commit, is_retry][known.shown(event.seen)]
    if isinstance(answer, ErrorCode):
        return _answered(known, event, answer)
    if answer is Doing.REPEAT:
        return _repeat_end(known, event)
    prepared = _prepared(known, open_now, event, now_ms)
    return _stored(
        prepared, _size(open_now), (event.token, Answered(ErrorCode.NONE, prepared.producer_id, prepared.epoch))
    )


def _repeat_end(known: TransactionalId, event: events.EndTxn) -> TxnDecision:
    """It was done already. Whoever hears this has the current epoch from now on."""
    reply = event.token, Answered(ErrorCode.NONE, known.producer_id, known.epoch)
    return TxnDecision(known, replies=(reply,)) if known.is_taken else _stored(replace(known, is_taken=True), 0, reply)


def _prepared(known: TransactionalId, open_now: Open | None, event: events.EndTxn, now_ms: int) -> TransactionalId:
    """The commit point: the verdict, whom it concerns, and who the producer is from now on."""
    trigger = TxnTrigger.COMMITTED if event.commit else TxnTrigger.ABORTED
    state = next_state(known.shown(open_now), trigger)
    prepared = _ending(known, open_now, now_ms, state, event.version, event.owner)
    if event.version == 1:
        return prepared
    if known.epoch >= EXHAUSTED_EPOCH:
        return replace(
            prepared, producer_id=event.new_producer_id, epoch=0, last_epoch=NO_EPOCH, previous_id=known.producer_id
        )
    return replace(prepared, epoch=known.epoch + 1, last_epoch=known.epoch)


def _ending(
    known: TransactionalId, open_now: Open | None, now_ms: int, state: TxnState, version: int, owner: str
) -> TransactionalId:
    marked_epoch = known.epoch if version == 1 else min(known.epoch + 1, LAST_EPOCH)
    ending = Ending(
        number=known.number + 1,
        commit=state is TxnState.PREPARE_COMMIT,
        producer_id=known.producer_id,
        epoch=marked_epoch,
        version=version,
        partitions=open_now.partitions if open_now else (),
        groups=open_now.groups if open_now else (),
        start_ms=open_now.start_ms if open_now else -1,
        decided_by=owner,
    )
    ended = replace(known, state=state, number=ending.number, ending=ending, updated_ms=now_ms)
    return replace(ended, interrupted=None, is_taken=True)


def _fenced(known: TransactionalId, open_now: Open | None, now_ms: int, owner: str = "") -> TransactionalId:
    """Aborts what is open under an epoch that its producer does not have: once, however often it is asked for."""
    state = next_state(TxnState.ONGOING, TxnTrigger.FENCED)
    fenced = _ending(known, open_now, now_ms, state, 2, owner)
    return replace(fenced, epoch=min(known.epoch + 1, LAST_EPOCH), last_epoch=known.epoch)


def _expire(name: str, known: TransactionalId | None, event: events.Expire, now_ms: int) -> TxnDecision:
    open_now = known.open_of(event.seen) if known is not None else None
    if known is None or known.is_prepared or open_now is None:
        return TxnDecision(known)
    fenced = _fenced(known, open_now, now_ms, event.owner if not event.is_lost else "")
    if event.is_lost:
        fenced = replace(fenced, epoch=_behind(known), interrupted=known.last_verdict, is_taken=False)
    if event.commit and fenced.ending is not None:
        ending = replace(fenced.ending, commit=True)
        fenced = replace(fenced, state=next_state(TxnState.ONGOING, TxnTrigger.COMMITTED), ending=ending)
    return _stored(fenced, open_now.size)


def _finish(name: str, known: TransactionalId | None, event: events.Finished, now_ms: int) -> TxnDecision:
    if known is None or known.number != event.number or not known.is_unfinished(event.server):
        return TxnDecision(known)
    done = replace(known, marked=event.server)
    if known.is_prepared:
        done = replace(done, state=next_state(known.state, TxnTrigger.FINISHED), updated_ms=now_ms)
    if known.may_have_lost(event.server) and not event.is_open:
        done = _interrupted(done, now_ms) if known.is_taken else replace(done, epoch=_behind(done))
    return _stored(done, _ANY)


def _interrupted(known: TransactionalId, now_ms: int) -> TransactionalId:
    """Fences the producer. It may be within a transaction that the store forgot: continued, that would be torn."""
    fenced = _fenced(known, None, now_ms)
    done = replace(fenced, state=next_state(fenced.state, TxnTrigger.FINISHED))
    return replace(done, epoch=_behind(known), interrupted=known.last_verdict, is_taken=False)


def _behind(known: TransactionalId) -> int:
    """An epoch that nobody had, also among those that the store and a dead owner forgot."""
    at_least = min(known.epoch + 1, LAST_EPOCH) if known.is_taken else known.epoch
    return max(at_least, min(known.epoch + _MARGIN, EXHAUSTED_EPOCH))


def _forget(name: str, known: TransactionalId | None, event: events.Forget, now_ms: int) -> TxnDecision:
    if known is None or known.is_prepared or known.updated_ms > event.unused_since_ms:
        return TxnDecision(known)
    next_state(known.state, TxnTrigger.FORGOTTEN)
    return TxnDecision(None, tombstone=True)


_HANDLERS: dict[type, Callable[[str, TransactionalId | None, Any, int], TxnDecision]] = {
    events.InitProducer: _init,
    events.EndTxn: _end,
    events.Expire: _expire,
    events.Finished: _finish,
    events.Forget: _forget,
}
