"""The states of a transactional id, the transitions between them, and the answer to each request in each state.

A transactional id identifies a producer across restarts. InitProducerId makes the caller that producer: it gets the
id's producer id with a higher epoch than any before, and requests with an older epoch are refused. An id has one
transaction at a time. The first partition or group added begins it. EndTxn ends it in two steps. The first, Prepare, is
the commit point: one write with the outcome and everything the transaction touched. From then on the outcome is final,
and the id's owner carries it out: a marker in every partition, the outcome for every group. Then the second step,
Complete, is written, and the next transaction may begin.

Version 1 of the protocol (KIP-98) keeps the epoch while the producer lives. A request delayed by the network can then
apply to a later transaction than it was sent for, undetectably. Version 2 (KIP-890) raises the epoch with every EndTxn,
so each transaction has its own. The versions of a client's requests show which one it uses: EndTxn from 5, Produce from
12, TxnOffsetCommit from 5.

A request comes from the current producer, or it is a retry with the previous epoch, because the response to its EndTxn,
which raised the epoch, was lost. Version 1 has no such retries.

Adding to a transaction is not decided here: any node does it, with a script that reads the stored state (`ADDING` has
its answers, and a test compares the two). So whether an id is Ongoing is read from the store when a decision is made,
and the decision is only written if that has not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum

from headrace.wire.errors import ErrorCode


class TxnState(StrEnum):
    """With Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


PREPARED = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)


class TxnTrigger(StrEnum):
    """Why a state changes."""

    INITIALISED = "InitProducerId"
    ADDED = "a partition or group is added"
    COMMITTED = "EndTxn, commit"
    ABORTED = "EndTxn, abort"
    FENCED = "InitProducerId, or a timeout"
    FINISHED = "all markers are written"
    FORGOTTEN = "unused for a week"


_E, _O = TxnState.EMPTY, TxnState.ONGOING
_PC, _PA = TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT
_CC, _CA = TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT

_RESTING = {
    TxnTrigger.INITIALISED: _E,
    TxnTrigger.ADDED: _O,
    TxnTrigger.ABORTED: _PA,
    TxnTrigger.FORGOTTEN: TxnState.DEAD,
}
"""Between two transactions. Only version 2 aborts here: its producer wants a new epoch, for what may have come late."""

TRANSITIONS: Mapping[TxnState, Mapping[TxnTrigger, TxnState]] = {
    _E: _RESTING,
    _O: {TxnTrigger.ADDED: _O, TxnTrigger.COMMITTED: _PC, TxnTrigger.ABORTED: _PA, TxnTrigger.FENCED: _PA},
    _PC: {TxnTrigger.FINISHED: _CC},
    _PA: {TxnTrigger.FINISHED: _CA},
    _CC: _RESTING,
    _CA: _RESTING,
    TxnState.DEAD: {},
}


class IllegalTxnMove(Exception):
    """A bug in this room: the table has no such move."""


def next_state(state: TxnState, trigger: TxnTrigger) -> TxnState:
    target = TRANSITIONS[state].get(trigger)
    if target is None:
        raise IllegalTxnMove(f"{state.value}: no move for '{trigger.value}'")
    return target


class Doing(Enum):
    """Answers other than an error."""

    PREPARE = "prepare"
    REPEAT = "0 again"
    """It was done already: no error, and the producer's current id and epoch."""
    RAISE = "epoch + 1"
    FENCE = "fence, 51"
    """Abort what is open, and say CONCURRENT_TRANSACTIONS until that is done."""


Answer = Doing | ErrorCode
Answers = Mapping[TxnState, Answer]

_BUSY, _INVALID, _FENCED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)
_DO, _AGAIN = Doing.PREPARE, Doing.REPEAT


END_TXN: Mapping[tuple[int, bool, bool], Answers] = {
    # (version of the protocol, commit, retry)
    (1, True, False): {_E: _INVALID, _O: _DO, _PC: _BUSY, _PA: _INVALID, _CC: _AGAIN, _CA: _INVALID},
    (1, False, False): {_E: _INVALID, _O: _DO, _PC: _INVALID, _PA: _BUSY, _CC: _INVALID, _CA: _AGAIN},
    (2, True, False): {_E: _INVALID, _O: _DO, _PC: _FENCED, _PA: _FENCED, _CC: _INVALID, _CA: _INVALID},
    (2, True, True): {_E: _FENCED, _O: _FENCED, _PC: _BUSY, _PA: _INVALID, _CC: _AGAIN, _CA: _INVALID},
    # Kafka says 90 to an abort of the next transaction too, which is fatal. It may come before the markers are there,
    # if a leader moves just then: the producer aborts what it has not sent yet.
    (2, False, False): {_E: _DO, _O: _DO, _PC: _BUSY, _PA: _BUSY, _CC: _DO, _CA: _DO},
    (2, False, True): {_E: _FENCED, _O: _FENCED, _PC: _INVALID, _PA: _BUSY, _CC: _INVALID, _CA: _AGAIN},
}

INIT_PRODUCER_ID: Answers = {
    _E: Doing.RAISE, _O: Doing.FENCE, _PC: _BUSY, _PA: _BUSY, _CC: Doing.RAISE, _CA: Doing.RAISE,
}  # fmt: skip

ADDING: Mapping[TxnState, ErrorCode] = {
    _E: ErrorCode.NONE, _O: ErrorCode.NONE, _PC: _BUSY, _PA: _BUSY, _CC: ErrorCode.NONE, _CA: ErrorCode.NONE,
}  # fmt: skip
"""Partitions by AddPartitionsToTxn or Produce, groups by AddOffsetsToTxn or TxnOffsetCommit."""


def diagram() -> str:
    """The state diagram as Mermaid text, drawn from `TRANSITIONS`."""
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in _diagram_lines())]) + "\n"


def _diagram_lines() -> Iterator[str]:
    yield f"[*] --> {TxnState.EMPTY.value}"
    for state, moves in TRANSITIONS.items():
        for trigger, target in moves.items():
            yield f"{state.value} --> {target.value}: {trigger.value}"
    yield f"{TxnState.DEAD.value} --> [*]"


_STATES_SHOWN = (_E, _O, _PC, _PA, _CC, _CA)


def answers() -> str:
    """The answers in each state as a Markdown table, from the tables above."""
    rows: list[tuple[str, Mapping[TxnState, Answer]]] = [("InitProducerId", INIT_PRODUCER_ID)]
    for (version, commit, retry), answer in END_TXN.items():
        what = "commit" if commit else "abort"
        rows.append((f"EndTxn, version {version}, {what}{', retry' if retry else ''}", answer))
    rows.append(("adding a partition or group", ADDING))
    head = f"| request | {' | '.join(state.value for state in _STATES_SHOWN)} |"
    lines = [head, "|---" * (len(_STATES_SHOWN) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(_cell(row[state]) for state in _STATES_SHOWN)} |" for name, row in rows]
    return "\n".join(lines) + "\n"


def _cell(answer: Answer) -> str:
    return answer.value if isinstance(answer, Doing) else str(int(answer))
