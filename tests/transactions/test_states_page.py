"""The tables, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.transactions.table import (
    ADDING,
    END_TXN,
    INIT_PRODUCER_ID,
    TRANSITIONS,
    IllegalTxnMove,
    TxnState,
    TxnTrigger,
    answers,
    diagram,
    next_state,
)

PAGE = Path(__file__).parents[2] / "docs" / "transactions-states.md"


def test_the_diagram_and_the_answers_on_the_page_come_from_the_live_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"```mermaid\n{diagram()}```\n" in text
    assert answers() in text


def test_the_page_speaks_of_every_state() -> None:
    prose = PAGE.read_text(encoding="utf-8").replace(diagram(), "").replace(answers(), "")
    assert all(state.value in prose for state in TxnState)


@pytest.mark.parametrize("state", TxnState)
@pytest.mark.parametrize("trigger", TxnTrigger)
def test_a_move_that_is_not_in_the_table_is_refused(state: TxnState, trigger: TxnTrigger) -> None:
    if trigger in TRANSITIONS[state]:
        assert next_state(state, trigger) is TRANSITIONS[state][trigger]
    else:
        with pytest.raises(IllegalTxnMove):
            next_state(state, trigger)


def test_every_request_has_an_answer_in_every_state() -> None:
    states = set(TxnState) - {TxnState.DEAD}
    assert all(row.keys() == states for row in (*END_TXN.values(), INIT_PRODUCER_ID, ADDING))
