"""The checker finds nothing where nothing is wrong, with nodes that die and a store that restarts; and finds bugs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.transactions import coordinator
from headrace.broker.transactions.finishing import _Marks
from headrace.store.cluster.owned.transactions import TransactionStore
from headrace.store.partition.appending import Appender
from headrace.store.partition.base import Partition
from headrace.store.partition.sequences.aborted import AbortedList
from headrace.transactions.state import Ending
from tests.broker.transactions.checker import Checker
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import Nodes
from tests.broker.transactions.test_steps import die
from tests.broker_process import RedisProcess


async def test_two_nodes_and_producers_of_both_versions_show_no_anomaly(start_node: StartNode) -> None:
    nodes = Nodes(await start_node(0), await start_node(1))
    checker = Checker(nodes, 1)
    assert not await checker.run(4, 12), "\n".join(checker.story)


async def test_markers_that_come_after_the_answer_show_no_anomaly(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a store that is away for longer than EndTxn waits for the markers."""
    mark = _Marks._mark

    async def mark_later(self: _Marks, topic: Any, number: int) -> None:
        await asyncio.sleep(0.05)
        await mark(self, topic, number)

    monkeypatch.setattr(_Marks, "_mark", mark_later)
    monkeypatch.setattr(coordinator, "_FINISH_WAIT_S", 0.01)
    checker = Checker(Nodes(await start_node()), 2)
    assert not await checker.run(3, 40), "\n".join(checker.story)


async def _anomalies(start_node: StartNode) -> dict[str, int]:
    return dict(await Checker(Nodes(await start_node()), 2, patience_s=4).run(3, 8))


def _skip_a_partition(patch: pytest.MonkeyPatch) -> None:
    mark = _Marks._mark

    async def some(self: _Marks, topic: Any, number: int) -> None:
        if number != 1:
            await mark(self, topic, number)

    patch.setattr(_Marks, "_mark", some)


def _forget_the_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedList, "between", lambda self, offset, end: [])


def _stable_is_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "ended_up_to", property(lambda self: self.end))


def _verify_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Appender, "_is_to_verify", lambda self, first, coming: False)
    add = TransactionStore.add

    async def added(self: TransactionStore, *arguments: Any, **options: Any) -> Any:
        found = await add(self, *arguments, **options)
        return found._replace(error=type(found.error)(0)) if options.get("only_check") else found

    patch.setattr(TransactionStore, "add", added)


def _flip_a_marker(patch: pytest.MonkeyPatch) -> None:
    init = _Marks.__init__

    def flipped(self: _Marks, store: Any, thing: Any, ending: Ending, *, again: bool) -> None:
        init(self, store, thing, ending, again=again)
        if ending.number % 3 == 0:
            self._marker = self._marker._replace(commit=not self._marker.commit)

    patch.setattr(_Marks, "__init__", flipped)


def _lose_verdicts(patch: pytest.MonkeyPatch) -> None:
    async def abort(self: TransactionStore, org: str, group: str, pid: int, number: int, *, commit: bool) -> None:
        await give(self, org, group, pid, number, commit=False)

    give = TransactionStore.give_verdict
    patch.setattr(TransactionStore, "give_verdict", abort)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (_skip_a_partition, {"a transaction hangs"}),
        (_forget_the_aborted, {"aborted read"}),
        (_stable_is_the_end, {"aborted read", "the last stable offset went back"}),
        (_verify_nothing, {"a batch is behind the end of its transaction"}),
        (_flip_a_marker, {"aborted read", "a committed record is lost"}),
        (_lose_verdicts, {"offset and records differ"}),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
async def test_it_catches_a_bug_that_was_planted(
    start_node: StartNode,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    expected: set[str],
) -> None:
    plant(monkeypatch)
    assert expected & (await _anomalies(start_node)).keys()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
async def test_nodes_die_and_the_store_restarts_without_an_anomaly(
    start_node: StartNode, redis: RedisProcess, seed: int
) -> None:
    nodes = Nodes(await start_node(0), await start_node(1))
    checker = Checker(nodes, seed)

    async def disturb() -> None:
        for number in range(6):
            await asyncio.sleep(1.5)
            if number % 3 == 2:
                redis.stop()
                redis.start()
                continue
            victim = number % 2
            await die(nodes.clients.pop(victim).broker)
            await asyncio.sleep(1.5)
            nodes.clients.update(Nodes(await start_node(victim)).clients)

    assert not await checker.run(4, 60, disturb), "\n".join(checker.story)
