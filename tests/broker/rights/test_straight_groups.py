"""What members of a group ask for goes straight, and nobody can tell by the answer."""

from __future__ import annotations

import asyncio

from headrace.broker.broker import Broker
from headrace.security.acls import Operation, ResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.broker.rights.caller import Client, grant

GROUP = "readers"


def join(member_id: str = "", group: str = GROUP) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"wants")]
    return JoinGroupRequest(group, 10_000, 10_000, member_id, protocol_type="consumer", protocols=protocols)


async def joined(client: Client) -> JoinGroupResponse:
    """A member joins as Kafka's clients do: it is given an id first."""
    asked: JoinGroupResponse = await client.ask(join(), 5)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    answer: JoinGroupResponse = await client.ask(join(asked.member_id), 5)
    assert client.went_straight
    assert answer.error_code == 0
    return answer


async def rebalance(client: Client, member: JoinGroupResponse) -> None:
    """Returns when a member is told to join again."""
    beat = HeartbeatRequest(GROUP, member.generation_id, member.member_id)
    while await client.codes(beat, 3) != {ErrorCode.REBALANCE_IN_PROGRESS}:
        continue


async def test_join_sync_and_heartbeat(strict: Broker) -> None:
    root = Client(strict, "root")
    answer = await joined(root)
    assert [(one.member_id, one.metadata) for one in answer.members] == [(answer.member_id, b"wants")]
    assignment = [SyncGroupRequestAssignment(answer.member_id, b"gets")]
    sync = SyncGroupRequest(GROUP, answer.generation_id, answer.member_id, assignments=assignment)
    synced: SyncGroupResponse = await root.ask(sync, 3)
    assert root.went_straight
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"gets")
    assert await root.codes(HeartbeatRequest(GROUP, answer.generation_id, answer.member_id), 3) == {0}
    assert root.went_straight


async def test_the_last_to_join_completes_what_the_others_wait_for(strict: Broker) -> None:
    clients = [Client(strict, "root") for _ in range(3)]
    first = await joined(clients[0])
    others = [asyncio.create_task(joined(client)) for client in clients[1:]]
    await rebalance(clients[0], first)
    again: JoinGroupResponse = await clients[0].ask(join(first.member_id), 5)
    generations = {answer.generation_id for answer in [again, *(await asyncio.gather(*others))]}
    assert max(generations) > first.generation_id


async def test_errors_are_the_same_as_on_the_other_road(strict: Broker) -> None:
    root, ann = Client(strict, "root"), Client(strict, "ann")
    assert await root.codes(HeartbeatRequest(GROUP, 1, "nobody"), 3) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert root.went_straight
    assert await root.codes(HeartbeatRequest("", 1, "nobody"), 3) == {ErrorCode.INVALID_GROUP_ID}
    assert await ann.codes(join(), 5) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert not ann.went_straight
    await grant(strict, "User:ann", operation=Operation.READ, resource_type=ResourceType.GROUP, name=GROUP)
    assert await ann.codes(join(), 5) == {ErrorCode.MEMBER_ID_REQUIRED}
    assert ann.went_straight


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped(strict: Broker) -> None:
    first, second = Client(strict, "root"), Client(strict, "root")
    known = await joined(first)
    waits = asyncio.create_task(joined(second))
    await rebalance(first, known)
    second.hang_up()
    again: JoinGroupResponse = await first.ask(join(known.member_id), 5)
    assert (again.error_code, len(again.members)) == (0, 2)
    waits.cancel()
