"""The machine against what Apache Kafka 4.3 answered: request by state by version, epochs, retries."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.transactions.events import Answered, EndTxn, Expire, Finished, Forget, InitProducer
from headrace.transactions.machine import TransactionMachine, TxnDecision
from headrace.transactions.state import Ending, Open, TransactionalId, from_fields, pack, unpack
from headrace.transactions.table import TxnState
from headrace.wire.errors import ErrorCode

MACHINE = TransactionMachine("mover")
PID, NEW_PID = 7000, 9000
NOW = 1_000_000
E, O = TxnState.EMPTY, TxnState.ONGOING  # noqa: E741
PC, PA = TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT
CC, CA = TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT
PARTS = (("topic", 0), ("topic", 1))

# The contract's table. "p" prepares; a number is the error; "0+" is no error with the current producer id and epoch.
# Kafka fences a producer (90) that aborts its next transaction while the last one is being finished; here it retries.
CONTRACT: dict[tuple[int, bool, bool], dict[TxnState, int | str]] = {
    (1, True, False): {E: 48, O: "p", PC: 51, PA: 48, CC: "0+", CA: 48},
    (1, False, False): {E: 48, O: "p", PC: 48, PA: 51, CC: 48, CA: "0+"},
    (2, True, False): {E: 48, O: "p", PC: 90, PA: 90, CC: 48, CA: 48},
    (2, True, True): {E: 90, O: 90, PC: 51, PA: 48, CC: "0+", CA: 48},
    (2, False, False): {E: "p", O: "p", PC: 51, PA: 51, CC: "p", CA: "p"},
    (2, False, True): {E: 90, O: 90, PC: 48, PA: 51, CC: 48, CA: "0+"},
}


def known(state: TxnState, epoch: int = 5, **fields: Any) -> TransactionalId:
    return TransactionalId(
        id="mover",
        state=E if state is O else state,
        producer_id=PID,
        epoch=epoch,
        timeout_ms=60_000,
        number=3,
        updated_ms=0,
        **fields,
    )


def ending(*, commit: bool) -> Ending:
    return Ending(number=3, commit=commit, producer_id=PID, epoch=5, version=2)


def seen(state: TxnState) -> Open | None:
    """An open transaction, or the leftovers of the one before."""
    return Open(4 if state is O else 3, NOW - 5, PARTS)


def end(state: TxnState, version: int, commit: bool, epoch: int, pid: int = PID, **fields: Any) -> TxnDecision:
    event = EndTxn(
        token="t",
        seen=seen(state),
        new_producer_id=NEW_PID,
        producer_id=pid,
        epoch=epoch,
        commit=commit,
        version=version,
    )
    return MACHINE.decide(known(state, **fields), event, NOW)


def init(known_now: TransactionalId | None, pid: int = -1, epoch: int = -1, state: TxnState = E) -> TxnDecision:
    event = InitProducer(
        token="t", seen=seen(state), new_producer_id=NEW_PID, timeout_ms=1_000, producer_id=pid, epoch=epoch
    )
    return MACHINE.decide(known_now, event, NOW)


def answer(decision: TxnDecision) -> Answered:
    ((token, answered),) = decision.replies
    assert token == "t"
    return answered


def after(decision: TxnDecision) -> TransactionalId:
    """The state as it is read back from the store."""
    assert decision.fields is not None
    assert decision.state is not None
    packed = {field: pack(value) for field, value in decision.fields.items()}
    read = from_fields("mover", {field: unpack(field, raw) for field, raw in packed.items()})
    assert read == decision.state
    return read


@pytest.mark.parametrize(("case", "state"), [(case, state) for case in CONTRACT for state in (E, O, PC, PA, CC, CA)])
def test_end_txn_is_answered_as_by_kafka(case: tuple[int, bool, bool], state: TxnState) -> None:
    version, commit, retry = case
    decision = end(state, version, commit, 4 if retry else 5)
    expected, got = CONTRACT[case][state], answer(decision)
    if expected == "0+":
        assert (got, decision.fields) == (Answered(ErrorCode.NONE, PID, 5), None)
    elif expected == "p":
        prepared = after(decision)
        assert prepared.state is (PC if commit else PA)
        assert got == Answered(ErrorCode.NONE, PID, 5 if version == 1 else 6)
        assert prepared.number == 4
        assert prepared.ending is not None
        assert (prepared.ending.epoch, prepared.ending.producer_id) == (5 if version == 1 else 6, PID)
        assert prepared.ending.partitions == (PARTS if state is O else ())
    else:
        assert (got.error, decision.fields) == (expected, None)


@pytest.mark.parametrize("state", [E, O, PC, PA, CC, CA])
@pytest.mark.parametrize("version", [1, 2])
def test_another_producer_is_refused_in_every_state(state: TxnState, version: int) -> None:
    assert answer(end(state, version, True, 5, pid=1)).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (3, 6):
        assert answer(end(state, version, True, epoch)).error == ErrorCode.PRODUCER_FENCED
    if version == 1:
        assert answer(end(state, version, True, 4)).error == ErrorCode.PRODUCER_FENCED


def test_an_unknown_id_has_no_transaction_and_gets_a_producer() -> None:
    event = EndTxn(token="t", seen=None, new_producer_id=1, producer_id=PID, epoch=0, commit=True, version=2)
    assert answer(MACHINE.decide(None, event, NOW)).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert answer(init(None)) == Answered(ErrorCode.NONE, NEW_PID, 0)
    assert answer(init(None, 1, 1)) == Answered(ErrorCode.NONE, NEW_PID, 0)


@pytest.mark.parametrize("state", [E, CC, CA])
def test_taking_an_id_raises_its_epoch_and_repeats_the_answer_to_who_did_not_hear_it(state: TxnState) -> None:
    assert answer(init(known(state))) == Answered(ErrorCode.NONE, PID, 6)
    first = init(known(state), PID, 5)
    assert answer(first) == Answered(ErrorCode.NONE, PID, 6)
    again = init(after(first), PID, 5)
    assert (answer(again), again.fields) == (Answered(ErrorCode.NONE, PID, 6), None)
    assert answer(init(after(first), PID, 4)).error == ErrorCode.PRODUCER_FENCED
    assert answer(init(after(first), 1, 5)).error == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [PC, PA])
def test_taking_an_id_waits_for_what_is_being_ended(state: TxnState) -> None:
    assert answer(init(known(state))).error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert answer(init(known(state), 1, 1)).error == ErrorCode.CONCURRENT_TRANSACTIONS


def test_taking_an_id_with_an_open_transaction_aborts_it_and_raises_the_epoch_once() -> None:
    fence = init(known(E), PID, 5, state=O)
    assert answer(fence).error == ErrorCode.CONCURRENT_TRANSACTIONS
    fenced = after(fence)
    assert (fenced.state, fenced.epoch, fenced.last_epoch) == (PA, 6, 5)
    assert fenced.ending is not None
    assert (fenced.ending.epoch, fenced.ending.commit, fenced.ending.partitions) == (6, False, PARTS)
    done = after(MACHINE.decide(fenced, Finished(4), NOW))
    assert done.state is CA
    recovered = init(done, PID, 5)
    assert answer(recovered) == Answered(ErrorCode.NONE, PID, 6)
    assert (after(recovered).state, after(recovered).timeout_ms) == (E, 1_000)
    assert init(after(recovered), PID, 5).fields is None


def test_after_a_time_out_the_late_producer_is_told_what_kafka_tells() -> None:
    expired = after(MACHINE.decide(known(E), Expire(Open(4, 1, PARTS)), NOW))
    assert (expired.state, expired.epoch) == (PA, 6)
    done = after(MACHINE.decide(expired, Finished(4), NOW))
    for commit, expected in ((True, Answered(ErrorCode.INVALID_TXN_STATE)), (False, Answered(ErrorCode.NONE, PID, 6))):
        event = EndTxn(token="t", seen=None, new_producer_id=1, producer_id=PID, epoch=5, commit=commit, version=2)
        assert answer(MACHINE.decide(done, event, NOW)) == expected
    assert answer(init(done, PID, 5)) == Answered(ErrorCode.NONE, PID, 6)


def test_another_run_of_the_servers_fences_the_producer_once_and_lets_it_go_on() -> None:
    idle = known(CC, marked="one", ending=ending(commit=True))
    fenced = after(MACHINE.decide(idle, Finished(3, "two"), NOW))
    assert (fenced.state, fenced.epoch, fenced.last_epoch, fenced.number) == (CA, 1_005, 5, 4)
    again = after(MACHINE.decide(fenced, Finished(4, "three"), NOW))
    assert (again.epoch, again.last_epoch, again.marked) == (2_005, 5, "three")
    assert answer(init(again, PID, 5)) == Answered(ErrorCode.NONE, PID, 2_005)
    for epoch, commit, expected in ((5, True, 48), (5, False, 0), (4, True, 0), (4, False, 90)):
        event = EndTxn(token="t", seen=None, new_producer_id=1, producer_id=PID, epoch=epoch, commit=commit, version=2)
        decision = MACHINE.decide(again, event, NOW)
        assert answer(decision).error == expected
        if not expected:
            assert after(MACHINE.decide(after(decision), Finished(4, "four"), NOW)).epoch == 3_005
    for commit, expected in ((True, 90), (False, 49)):
        event = EndTxn(token="t", seen=None, new_producer_id=1, producer_id=PID, epoch=5, commit=commit, version=1)
        assert answer(MACHINE.decide(again, event, NOW)).error == expected


def test_one_that_is_open_under_another_run_is_ended_and_fenced_once() -> None:
    marked = after(MACHINE.decide(known(CC, marked="one"), Finished(3, "two", is_open=True), NOW))
    assert (marked.state, marked.epoch, marked.marked) == (CC, 5, "two")
    ended = after(MACHINE.decide(marked, Expire(Open(4, 1, PARTS), is_lost=True), NOW))
    assert (ended.state, ended.epoch) == (PA, 1_005)


@pytest.mark.parametrize("is_open", [False, True])
def test_no_epoch_is_given_out_again_that_the_store_may_have_forgotten(is_open: bool) -> None:
    stored = known(CC, marked="one")
    forgotten = answer(init(after(init(stored)))).epoch
    marked = after(MACHINE.decide(stored, Finished(3, "two", is_open=is_open), NOW))
    if is_open:
        ended = after(MACHINE.decide(marked, Expire(Open(4, 1, PARTS), is_lost=True), NOW))
        marked = after(MACHINE.decide(ended, Finished(4, "two"), NOW))
    assert marked.epoch > forgotten
    taken = after(init(marked, PID, 5))
    later = after(MACHINE.decide(marked, Finished(4, "three"), NOW))  # the store forgot that the epoch was taken
    assert later.epoch > taken.epoch


@pytest.mark.parametrize(
    ("epoch", "expected"), [(31_000, 32_000), (32_700, 32_766), (32_766, 32_767), (32_767, 32_767)]
)
def test_a_fence_leaves_an_epoch_to_be_taken(epoch: int, expected: int) -> None:
    assert after(MACHINE.decide(known(CC, epoch, marked="one"), Finished(3, "two"), NOW)).epoch == expected
    untaken = known(CC, epoch, marked="one", is_taken=False)
    assert after(MACHINE.decide(untaken, Finished(3, "two"), NOW)).epoch == max(epoch, min(expected, 32_766))


def test_used_up_epochs_give_a_new_producer_id_and_the_retry_is_known() -> None:
    ended = _end_exhausted()
    assert answer(ended) == Answered(ErrorCode.NONE, NEW_PID, 0)
    state = after(ended)
    assert state.ending is not None
    assert (state.ending.producer_id, state.ending.epoch) == (PID, 32_767)
    done = after(MACHINE.decide(state, Finished(4), NOW))
    event = EndTxn(token="t", seen=None, new_producer_id=1, producer_id=PID, epoch=32_766, commit=True, version=2)
    assert answer(MACHINE.decide(done, event, NOW)) == Answered(ErrorCode.NONE, NEW_PID, 0)
    assert answer(init(known(E, 32_766))) == Answered(ErrorCode.NONE, NEW_PID, 0)
    assert answer(init(known(E, 32_767))) == Answered(ErrorCode.NONE, NEW_PID, 0)


def _end_exhausted() -> TxnDecision:
    event = EndTxn(
        token="t", seen=seen(O), new_producer_id=NEW_PID, producer_id=PID, epoch=32_766, commit=True, version=2
    )
    return MACHINE.decide(known(E, 32_766), event, NOW)


def test_a_fence_never_overflows_the_epoch() -> None:
    fenced = after(MACHINE.decide(known(E, 32_767), Expire(Open(4, 1, PARTS)), NOW))
    assert fenced.epoch == 32_767


@pytest.mark.parametrize("state", [PC, PA])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_one_that_was_begun_before_the_store_forgot_that_the_last_one_was_finished_is_ended_later(
    state: TxnState, version: int, commit: bool
) -> None:
    begun = Open(4, NOW - 5, PARTS)
    event = EndTxn(token="t", seen=begun, new_producer_id=1, producer_id=PID, epoch=5, commit=commit, version=version)
    decision = MACHINE.decide(known(state), event, NOW)
    assert (answer(decision).error, decision.fields) == (ErrorCode.CONCURRENT_TRANSACTIONS, None)


def test_what_was_seen_guards_the_write() -> None:
    decisions = [end(O, 2, True, 5), end(E, 2, False, 5), init(known(E)), MACHINE.decide(known(PC), Finished(3), NOW)]
    guards = [decision.fields["guard"].split(" ")[1] for decision in decisions if decision.fields is not None]
    assert guards == ["2", "0", "0", "-1"]


def test_a_late_word_of_another_transaction_changes_nothing() -> None:
    for event in (Finished(2), Finished(5)):
        assert MACHINE.decide(known(PC), event, NOW) == TxnDecision(known(PC))
    assert MACHINE.decide(known(PC), Expire(Open(4, 1, PARTS)), NOW) == TxnDecision(known(PC))
    assert MACHINE.decide(known(E), Expire(Open(3, 1, PARTS)), NOW) == TxnDecision(known(E))


def test_only_a_resting_id_is_forgotten() -> None:
    assert MACHINE.decide(known(CC), Forget(NOW), NOW).tombstone
    assert not MACHINE.decide(known(PC), Forget(NOW), NOW).tombstone
    assert not MACHINE.decide(known(CC), Forget(-1), NOW).tombstone
