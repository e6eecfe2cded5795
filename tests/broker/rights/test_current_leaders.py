"""Who leads instead (KIP-951) is told to those who may use the topic, and to nobody else."""

from __future__ import annotations

import pytest

from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.private.alter_organisation import AlterOrganisationRequest
from tests.broker.peers import batch_of
from tests.broker.rights.caller import Client, grant
from tests.broker.rights.conftest import StartStrict
from tests.store.produced import until

PARTITIONS = 8
NOBODY = (-1, -1)
Told = tuple[int, tuple[int, int], list[tuple[int, int]]]
"""Error, leader and its epoch, nodes and their ports."""


class Elsewhere:
    """A partition of "orders" that the node asked does not lead, and who asks for it."""

    def __init__(self, uuid: bytes, number: int) -> None:
        self._uuid, self._number = uuid, number

    async def produce(self, client: Client) -> Told:
        data = TopicProduceData(self._uuid, "", [PartitionProduceData(self._number, batch_of(b"x"))])
        response = await client.ask(ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[data]), 13)
        (answer,) = response.responses[0].partition_responses
        leader = answer.current_leader
        return (
            answer.error_code,
            (leader.leader_id, leader.leader_epoch),
            [(one.node_id, one.port) for one in response.node_endpoints],
        )

    async def fetch(self, client: Client) -> Told:
        wanted = FetchTopic(self._uuid, "", [FetchPartition(self._number, partition_max_bytes=1 << 20)])
        response = await client.ask(FetchRequest(topics=[wanted], session_epoch=-1), 17)
        (answer,) = response.responses[0].partitions
        leader = answer.current_leader
        return (
            answer.error_code,
            (leader.leader_id, leader.leader_epoch),
            [(one.node_id, one.port) for one in response.node_endpoints],
        )


@pytest.mark.parametrize("format", ["log", "stream"])
async def test_only_those_with_the_right_are_told_who_leads(start_strict: StartStrict, format: str) -> None:
    one, two = await start_strict(1), await start_strict(2)
    await one.store.nodes.refresh()
    await until(lambda: len(one.store.nodes.live) == len(two.store.nodes.live) == 2)
    root = Client(one, "root")
    topic = await root.access.create_topic("orders", PARTITIONS, {"headrace.format": format})
    number = next(number for number in range(PARTITIONS) if one.store.nodes.leader(topic, number).id == 2)
    there = Elsewhere(topic.uuid, number)
    told: Told = (ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 0), [(2, 9094)])
    assert await there.produce(root) == told
    assert await there.fetch(root) == told

    nobody = Client(one, "nobody")
    refused: Told = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOBODY, [])
    assert await there.produce(nobody) == refused
    assert await there.fetch(nobody) == refused
    await grant(one, "User:reader", operation=Operation.READ)
    reader = Client(one, "reader")
    assert await there.produce(reader) == refused
    assert await there.fetch(reader) == told

    assert await root.codes(AlterOrganisationRequest("acme", True)) == {0}
    other = Client(one, "root", "acme")
    unknown: Told = (ErrorCode.UNKNOWN_TOPIC_ID, NOBODY, [])
    assert await there.produce(other) == unknown
    assert await there.fetch(other) == unknown
