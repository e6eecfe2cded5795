"""Large groups and many groups: they form, and what one commit costs does not depend on how many there are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from headrace.client.connection import BrokerConnection
from tests.broker import members
from tests.broker.administrator import Administrator, new_topic
from tests.broker.members import MEMBER_ID_REQUIRED, NONE, REBALANCE_IN_PROGRESS, Member, commit, fetch_offsets
from tests.broker.peers import connect
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.redis_view import RedisView

SIZE = 200
REPEATED = 200
OF_THE_UPKEEP = 20
"""Commands that the broker may have sent for other reasons in some seconds: its lease, its topics, its memory."""
SOME_SECONDS = 5


def form_all(group: list[Member]) -> None:
    """Everybody joins and syncs; the leader gives member n partition n."""
    for member in group:
        member.ask_join()
    answers = [member.joined() for member in group]
    assert {answer.error_code for answer in answers} == {NONE}
    assert len({answer.generation_id for answer in answers}) == 1
    (leader,) = [member for member in group if member.id == answers[0].leader]
    (led,) = [answer for answer in answers if answer.members]
    assert {row.member_id for row in led.members} == {member.id for member in group}
    for member in group:
        member.ask_sync({m.id: b"%d" % number for number, m in enumerate(group)} if member is leader else None)
    assert [member.synced().assignment for member in group] == [b"%d" % number for number in range(len(group))]


def test_200_members_form_a_group_and_form_it_again_when_one_leaves(start_broker: StartBroker, group: str) -> None:
    broker = start_broker(group_initial_rebalance_delay_ms=300)
    with contextlib.ExitStack() as stack, connect(broker) as observer:
        everybody = [stack.enter_context(Member(broker, group, client_id=f"c{n}")) for n in range(SIZE)]
        for member in everybody:
            member.ask_join()
        assert {member.joined().error_code for member in everybody} == {MEMBER_ID_REQUIRED}
        form_all(everybody)
        assert members.state_of(observer, group) == "Stable"
        everybody.pop(SIZE // 2).leave()
        assert {member.heartbeat() for member in everybody} == {REBALANCE_IN_PROGRESS}
        form_all(everybody)
        assert members.state_of(observer, group) == "Stable"
        assert {member.heartbeat() for member in everybody} == {NONE}


@pytest.fixture
def connection(groups_broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(groups_broker) as found:
        yield found


def test_with_1000_groups_and_1000_partitions_a_commit_and_a_fetch_cost_what_they_cost_with_one(
    groups_broker: BrokerProcess, connection: BrokerConnection, group: str, topic: str
) -> None:
    partitions = range(1_000)
    assert Administrator(connection).create(new_topic(topic, len(partitions))).error_code == NONE
    offset = iter(range(1_000_000))

    def commit_one() -> None:
        assert commit(connection, group, topic, {0: next(offset)}) == {0: NONE}

    def fetch_one() -> None:
        assert fetch_offsets(connection, group, {topic: [0]})[0] == NONE

    with RedisView.of(groups_broker) as redis:
        commit_one()
        alone = cost(redis, commit_one), cost(redis, fetch_one)
        commit(connection, group, topic, dict.fromkeys(partitions, 1))
        for number in range(1_000):
            assert commit(connection, f"{group}-{number}", topic, {0: 1}) == {0: NONE}
        everywhere = [redis.log_key(topic, number) for number in (0, 999)]
        for stream, mirrors in zip(everywhere, (1_001, 1), strict=True):
            wait_until(partial(has_mirrors, redis, stream, mirrors), "Redis does not show all of it")
        crowded = cost(redis, commit_one), cost(redis, fetch_one)
    for (before, some), (after, more) in zip(alone, crowded, strict=True):
        differences = {name: after[name] - before[name] for name in after}
        assert all(abs(difference) < max(some, more) for difference in differences.values()), differences
    (committing, more), (fetching, some) = crowded
    assert REPEATED <= committing["evalsha"] < REPEATED + more, "one write a commit"
    assert REPEATED <= committing["hset"] < REPEATED + more, "one field a partition"
    assert sum(fetching.values()) < some, "a fetch of offsets asks Redis nothing"


def has_mirrors(redis: RedisView, stream: str, count: int) -> bool:
    return len(redis.groups_of(stream)) == count


def cost(redis: RedisView, work: Callable[[], None]) -> tuple[dict[str, int], float]:
    """How often each command ran while something was done many times, and how many may be of the upkeep.

    Commands for people's eyes are not counted.
    """
    before, began = redis.command_calls(), time.monotonic()
    for _ in range(REPEATED):
        work()
    after = redis.command_calls()
    watched = ("evalsha", "eval", "hset", "hgetall", "hmget", "hkeys", "smembers", "sadd", "exists", "set", "get")
    of_the_upkeep = OF_THE_UPKEEP * max(1, (time.monotonic() - began) / SOME_SECONDS)
    return {name: after.get(name, 0) - before.get(name, 0) for name in watched}, of_the_upkeep
