"""The store goes back and a partition's leader dies: its last records are an earlier transaction's, without an end."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.owned.contract import Name
from headrace.broker.transactions.verdicts import LatestVerdicts, Place, first_due
from headrace.store.partition.sequences.producers import KnownProducer, Producers
from headrace.store.redis.errors import StoreAway
from headrace.transactions.state import Ending
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import PARTITIONS, TOPIC, Mover, Nodes, until
from tests.broker.transactions.test_lost_parts import Past, is_stable
from tests.broker.transactions.test_steps import die
from tests.broker_process import RedisProcess

PLACE = ("ledger", 0)
MOVER = Name("default", "mover")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("then", [[True], [], [False, True]], ids=["a commit", "nothing", "an abort and a commit"])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_whose_marker_was_lost_ends_with_its_own_verdict(
    start_node: StartNode, redis: RedisProcess, commit: bool, then: list[bool], version: int
) -> None:
    nodes = Nodes(await start_node(1), await start_node(2))
    await nodes.create()
    mover = Mover(nodes, version=version)
    await mover.init_patiently()
    number, leader = await led_elsewhere(nodes, mover)
    assert await mover.send(number, b"first") == 0
    past = Past(redis, f"*{{{TOPIC}:{number}:*")
    assert await mover.end(commit=commit) == 0
    for outcome in then:
        for partition in range(PARTITIONS):
            assert await mover.send(partition, b"next") == 0
        assert await mover.end(commit=outcome) == 0
    dead = nodes.clients.pop(leader)
    await die(dead.broker)
    await asyncio.to_thread(past.comes_back)
    await until(is_stable(nodes), 30)
    assert await nodes.read(number) == ([b"first"] if commit else [])


async def led_elsewhere(nodes: Nodes, mover: Mover) -> tuple[int, int]:
    """A partition that the id's owner does not lead, and who does."""
    owner = mover.coordinator.broker.store.nodes.me.id
    leaders = {number: (await nodes.leader(number)).broker.store.nodes.me.id for number in range(PARTITIONS)}
    return next((number, leader) for number, leader in leaders.items() if leader != owner)


async def test_a_partition_that_is_away_does_not_hold_up_an_id_that_used_it_earlier(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on a server that is away for long."""
    broker = await start_node()
    nodes = Nodes(broker)
    await nodes.create()
    mover = Mover(nodes, version=1)
    assert await mover.init() == 0
    for number in (1, 0):
        assert await mover.send(number, b"first") == 0
        assert await mover.end(commit=True) == 0
    away = broker.store.default.opened[broker.store.default.catalogue.by_name[TOPIC].uuid, 1]

    async def is_away() -> None:
        raise StoreAway

    monkeypatch.setattr(away, "confirm", is_away)
    await asyncio.to_thread(Past(redis).comes_back)
    async with asyncio.timeout(20):
        await mover.init_patiently()
    assert await mover.send(0, b"next") == 0
    assert await mover.end(commit=True) == 0
    assert await nodes.read(0) == [b"first", b"next"]


def _ending(number: int, *, epoch: int = 3, version: int = 1) -> Ending:
    return Ending(number=number, commit=True, producer_id=7, epoch=epoch, version=version, partitions=(PLACE,))


def _due(endings: list[Ending], *, ended: int, epoch: int = 3, place: Place = PLACE, is_open: bool = True) -> object:
    producers = Producers()
    producers.by_id[7] = KnownProducer(epoch, [], ended=ended)
    producers.open = {7: 100} if is_open else {}
    return first_due(endings, place, producers, 7)


def test_the_first_transaction_that_no_marker_ended_is_the_one_that_is_open() -> None:
    endings = [_ending(4), _ending(6)]
    assert _due(endings, ended=3) == endings[0]
    assert _due(endings, ended=4) == endings[1]
    assert _due(endings, ended=6) is None
    assert _due(endings, ended=3, place=("ledger", 1)) is None
    assert _due(endings, ended=3, is_open=False) is None


def test_transactions_of_earlier_epochs_are_not_open() -> None:
    before = _ending(4), _ending(5, version=2, epoch=4)
    later = _ending(6, epoch=4), _ending(6, version=2, epoch=5)
    for one in later:
        assert _due([*before, one], ended=0, epoch=4) == one


def test_the_oldest_verdicts_of_all_ids_are_forgotten() -> None:
    verdicts, other = LatestVerdicts(kept=2), Name("default", "other")
    for name, number in ((MOVER, 1), (other, 1), (MOVER, 2), (MOVER, 2)):
        verdicts.add(name, _ending(number))
    assert verdicts.before(MOVER, _ending(3)) == [_ending(2)]
    assert verdicts.before(MOVER, _ending(2)) == []
    assert verdicts.before(other, _ending(3)) == [_ending(1)]


def test_verdicts_on_an_earlier_producer_id_are_left_alone() -> None:
    verdicts = LatestVerdicts()
    verdicts.add(MOVER, _ending(1))
    last = Ending(number=2, commit=True, producer_id=8, epoch=0, version=1)
    assert verdicts.before(MOVER, last) == []
