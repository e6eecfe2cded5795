"""A transaction whose id moves to another node, or on, while its markers are written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.broker.owned.contract import Name
from headrace.broker.owned.thing import Thing
from headrace.broker.transactions.finishing import Finisher
from headrace.transactions.state import Ending, TransactionalId
from headrace.transactions.table import TxnState
from headrace.wire.errors import ErrorCode, KafkaError
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import Mover, Nodes

PREPARED = TransactionalId(
    id="mover",
    state=TxnState.PREPARE_COMMIT,
    producer_id=7,
    epoch=0,
    timeout_ms=60_000,
    number=3,
    updated_ms=0,
    ending=Ending(number=3, commit=True, producer_id=7, epoch=0, version=2),
)


class Interrupted(Finisher):
    """Something happens to the id once the markers are written."""

    def __init__(self, then: Callable[[Any], None]) -> None:
        store: Any = SimpleNamespace(transactions=SimpleNamespace(server="run"))
        runtime: Any = SimpleNamespace(look=self._look)
        super().__init__(store, runtime)
        self._then, self.events = then, list[Any]()

    async def spread(self, thing: Any, ending: Ending, *, again: bool = False) -> None:
        self._then(thing)

    async def _look(self, _: Name, make_event: Callable[[Any], Any]) -> None:
        self.events.append(make_event(None))
        raise KafkaError(ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("state", [None, replace(PREPARED, number=4)], ids=["to another node", "on"])
async def test_the_transaction_whose_markers_were_written_is_finished_and_no_other(
    state: TransactionalId | None, caplog: pytest.LogCaptureFixture
) -> None:
    def moves(thing: Any) -> None:
        thing.state, thing.is_gone = state, True

    finisher = Interrupted(moves)
    thing: Any = SimpleNamespace(name=Name("", "mover"), state=PREPARED, is_gone=False)
    task = finisher.start(thing)
    assert task is not None
    await task
    assert [event.number for event in finisher.events] == [3]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_producer_whose_id_is_let_go_while_it_waits_for_the_last_outcome_tries_again(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(await start_node())
    mover = Mover(nodes, version=2)
    assert await mover.init() == 0

    def let_go(finisher: Finisher, thing: Thing[TransactionalId]) -> None:
        monkeypatch.undo()
        thing.let_go()

    monkeypatch.setattr(Finisher, "start", let_go)
    assert await mover.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await mover.init() == 0
