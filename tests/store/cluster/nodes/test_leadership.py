"""Leadership: within its bound, the same everywhere, and moving little; replicas on as many racks as there are."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import kafka_uuid
from headrace.store.cluster.nodes.endpoints import Node, node_at
from headrace.store.cluster.nodes.leadership import Leadership

LEADERS = [0, 1, 0, 0, 2, 2, 2, 0, 2, 2, 0, 1]
OWNERS = [1, 0, 0, 0, 0, 1, 2, 1, 2, 0, 0, 0]


def nodes_of(*ids: int, racks: str = "") -> list[Node]:
    return [node_at(id, "host", id, racks[at % len(racks)] if racks else "") for at, id in enumerate(sorted(ids))]


def topic_of(number: int, partitions: int, copies: int = 1) -> Topic:
    return Topic("orders", kafka_uuid(number.to_bytes(16, "big")), partitions, copies=copies)


def leaders(nodes: list[Node], topic: Topic) -> list[int]:
    leadership = Leadership(nodes)
    return [leadership.leader(topic, number).id for number in range(topic.partitions)]


@given(
    ids=st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=12),
    number=st.integers(0, 2**128 - 1),
    partitions=st.integers(1, 60),
)
def test_no_node_leads_more_of_a_topic_than_its_share(ids: set[int], number: int, partitions: int) -> None:
    counts = Counter(leaders(nodes_of(*ids), topic_of(number, partitions)))
    assert max(counts.values()) <= ceil(1.25 * partitions / len(ids))


@pytest.mark.parametrize("nodes", [3, 7, 100, 300])
@pytest.mark.parametrize("partitions", [1_023, 1_024, 5_000, 10_240])
def test_the_bound_holds_over_many_blocks(nodes: int, partitions: int) -> None:
    counts = Counter(leaders(nodes_of(*range(nodes)), topic_of(nodes, partitions)))
    assert max(counts.values()) <= ceil(1.25 * partitions / nodes)


def test_what_was_asked_before_makes_no_difference() -> None:
    topic, nodes = topic_of(7, 3_000), nodes_of(*range(5))
    forwards, backwards = Leadership(nodes), Leadership(nodes)
    first = [forwards.leader(topic, number).id for number in range(3_000)]
    assert first == [backwards.leader(topic, number).id for number in reversed(range(3_000))][::-1]


def test_topics_that_come_and_go_leave_no_more_behind_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.cluster.nodes.leadership._BLOCKS_MOST", 100)
    leadership, nodes = Leadership(nodes_of(0, 1, 2)), nodes_of(0, 1, 2)
    for number in range(1_000):
        topic = topic_of(number, 3)
        assert [leadership.leader(topic, at).id for at in range(3)] == leaders(nodes, topic)
        assert len(leadership._blocks) <= 100


def test_leaders_are_those_that_were_written_down() -> None:
    """Nodes of two versions run side by side: another rule would have them send clients to each other."""
    assert leaders(nodes_of(0, 1, 2), topic_of(1, 12)) == LEADERS
    assert [Leadership(nodes_of(0, 1, 2)).owner(b"group-%d" % number).id for number in range(12)] == OWNERS


def test_a_node_that_goes_moves_little_more_than_its_own_partitions() -> None:
    moved = own = 0
    for number in range(100):
        topic = topic_of(number, 24)
        before, after = leaders(nodes_of(0, 1, 2, 3, 4), topic), leaders(nodes_of(0, 1, 3, 4), topic)
        moved += sum(one != other for one, other in zip(before, after, strict=True))
        own += before.count(2)
    assert moved < 1.3 * own


def test_replicas_are_on_as_many_racks_as_there_are() -> None:
    leadership = Leadership(nodes_of(*range(9), racks="abc"))
    for number in range(50):
        for copies, racks in ((2, 2), (3, 3), (5, 3)):
            replicas = leadership.replicas(topic_of(number, 1, copies), 0)
            assert len({node.id for node in replicas}) == copies
            assert len({node.rack for node in replicas}) == racks


def test_the_first_replica_leads() -> None:
    leadership, topic = Leadership(nodes_of(*range(5), racks="ab")), topic_of(3, 200, copies=3)
    assert all(leadership.replicas(topic, n)[0] == leadership.leader(topic, n) for n in range(200))


def test_few_topics_of_few_partitions_are_shared_by_all_nodes() -> None:
    """Three partitions on three nodes: plain hashing would put all on one node once in nine times."""
    for number in range(200):
        assert max(Counter(leaders(nodes_of(0, 1, 2), topic_of(number, 3))).values()) <= 2


def test_partitions_that_a_topic_does_not_have_yet_are_somebodys() -> None:
    leadership, topic = Leadership(nodes_of(0, 1, 2)), topic_of(5, 4)
    assert leadership.leader(topic, 9).id in {0, 1, 2}
    assert [leadership.leader(topic, n).id for n in range(4)] == leaders(nodes_of(0, 1, 2), topic)
