"""The table of states, and the page that shows it."""

from pathlib import Path

import pytest

from headrace.groups.classic.table import TRANSITIONS, ClassicState, IllegalTransition, Trigger, diagram, next_state

PAGE = Path(__file__).parents[3] / "docs" / "groups-states.md"


def test_the_diagram_on_the_page_is_drawn_from_the_live_table() -> None:
    assert f"```mermaid\n{diagram()}```\n" in PAGE.read_text(encoding="utf-8")


def test_the_page_speaks_of_every_state() -> None:
    prose = PAGE.read_text(encoding="utf-8").replace(diagram(), "")
    assert all(state.value in prose for state in ClassicState)


@pytest.mark.parametrize("state", ClassicState)
@pytest.mark.parametrize("trigger", Trigger)
def test_a_move_that_is_not_in_the_table_is_refused(state: ClassicState, trigger: Trigger) -> None:
    if trigger in TRANSITIONS[state]:
        assert next_state(state, trigger) is TRANSITIONS[state][trigger]
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, trigger)


def test_dead_is_final_and_every_state_can_be_reached() -> None:
    assert not TRANSITIONS[ClassicState.DEAD]
    reached = {ClassicState.EMPTY} | {target for moves in TRANSITIONS.values() for target in moves.values()}
    assert reached == set(ClassicState)
