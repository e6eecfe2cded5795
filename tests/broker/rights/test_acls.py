"""Rules that are stored: the three APIs, with real clients and by hand, and how soon they count."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from headrace.broker.broker import Broker
from headrace.security.acls import Operation, PatternType, Permission
from headrace.security.acls import ResourceType as Of
from headrace.security.caller import system_caller
from headrace.wire.apis import APIS
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.describe_acls import DescribeAclsRequest
from headrace.wire.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.offsets_topic import OFFSETS_TOPIC
from tests.broker.peers import batch_of, fetch_request, produce_request
from tests.broker.rights.caller import Client, grant
from tests.broker.rights.conftest import StartStrict
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

PATIENCE_S = 30
EVERY: Any = None
ANY = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


@pytest.fixture
def anonymous_root(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(authorizer="on", super_users="User:ANONYMOUS")


def binding(
    kind: ResourceType, name: str, pattern: ResourcePatternType, who: str, operation: AclOperation
) -> AclBinding:
    return AclBinding(kind, name, pattern, who, "*", operation, AclPermissionType.ALLOW)


def test_confluents_client_creates_finds_and_deletes_rules(anonymous_root: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": anonymous_root.address})
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    rules = [
        binding(ResourceType.TOPIC, "orders", literal, "User:alice", AclOperation.READ),
        binding(ResourceType.TOPIC, "ord", prefixed, "User:bob", AclOperation.WRITE),
        binding(ResourceType.GROUP, "*", literal, "User:alice", AclOperation.READ),
    ]
    for future in admin.create_acls(rules).values():
        future.result(PATIENCE_S)
    any_topic = AclBindingFilter(
        ResourceType.TOPIC, EVERY, ResourcePatternType.ANY, EVERY, EVERY, AclOperation.ANY, AclPermissionType.ANY
    )
    assert sorted(map(str, admin.describe_acls(any_topic).result(PATIENCE_S))) == sorted(map(str, rules[:2]))
    matching = AclBindingFilter(
        ResourceType.TOPIC, "orders", ResourcePatternType.MATCH, EVERY, EVERY, AclOperation.ANY, AclPermissionType.ANY
    )
    gone = admin.delete_acls([matching])[matching].result(PATIENCE_S)
    assert sorted(map(str, gone)) == sorted(map(str, rules[:2]))
    assert admin.describe_acls(any_topic).result(PATIENCE_S) == []


def test_without_an_authorizer_security_is_disabled(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    rule = binding(ResourceType.TOPIC, "a", ResourcePatternType.LITERAL, "User:a", AclOperation.READ)
    with pytest.raises(KafkaException) as refused:
        admin.create_acls([rule])[rule].result(PATIENCE_S)
    assert refused.value.args[0].name() == "SECURITY_DISABLED"


async def test_the_three_apis_in_all_versions(strict: Broker) -> None:
    root = Client(strict, "root")
    for version in range(APIS[30].oldest, APIS[30].newest + 1):
        creations = [AclCreation(2, f"t{version}", 4, "User:eve", "10.0.0.1", 3, 2)]
        made = await root.ask(CreateAclsRequest(creations * 2), version)
        assert [(row.error_code, row.error_message) for row in made.results] == [(0, None)] * 2
        found = await root.ask(ANY, version)
        [resource] = found.resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, f"t{version}", 4)
        [acl] = resource.acls
        assert (acl.principal, acl.host, acl.operation, acl.permission_type) == ("User:eve", "10.0.0.1", 3, 2)
        gone = await root.ask(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, "User:eve", None, 1, 1)]), version)
        [result] = gone.filter_results
        assert (result.error_code, [one.resource_name for one in result.matching_acls]) == (0, [f"t{version}"])


@pytest.mark.parametrize(
    ("creation", "message"),
    [
        (AclCreation(4, "other", 3, "User:a", "*", 3, 3), "The only valid name for the CLUSTER resource"),
        (AclCreation(2, "", 3, "User:a", "*", 3, 3), "Invalid empty resource name"),
        (AclCreation(1, "t", 3, "User:a", "*", 3, 3), "Invalid resourceType ANY"),
        (AclCreation(99, "t", 3, "User:a", "*", 3, 3), "Invalid resourceType UNKNOWN"),
        (AclCreation(2, "t", 2, "User:a", "*", 3, 3), "Invalid patternType MATCH"),
        (AclCreation(2, "t", 3, "User:a", "*", 1, 3), "Invalid operation ANY"),
        (AclCreation(2, "t", 3, "User:a", "*", 3, 1), "Invalid permissionType ANY"),
        (AclCreation(2, "t", 3, "alice", "*", 3, 3), "Could not parse principal"),
        (AclCreation(2, "t", 3, "User:a", "", 3, 3), "The host must not be empty"),
    ],
)
async def test_a_rule_that_makes_no_sense_is_refused(strict: Broker, creation: AclCreation, message: str) -> None:
    root = Client(strict, "root")
    [result] = (await root.ask(CreateAclsRequest([creation]))).results
    assert (result.error_code, message in result.error_message) == (42, True)
    assert (await root.ask(ANY)).resources == []


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


async def test_a_change_counts_at_once_here_and_soon_elsewhere(start_strict: StartStrict) -> None:
    here, there = await start_strict(0), await start_strict(1)
    await Client(here, "root").access.create_topic("orders", 1, {})
    ask = MetadataRequest([MetadataRequestTopic(name="orders")], False)
    ours, theirs = Client(here, "alice"), Client(there, "alice")
    assert await ours.codes(ask) == await theirs.codes(ask) == {0, 29}
    rule = await grant(here, "User:alice", name="orders", operation=Operation.DESCRIBE)
    assert await ours.codes(ask) == {0}

    async def known() -> bool:
        return 29 not in await theirs.codes(ask)

    await until(known)
    await there.authorizer.remove(system_caller("default"), rule)
    assert await theirs.codes(ask) == {0, 29}

    async def forgotten() -> bool:
        return 29 in await ours.codes(ask)

    await until(forgotten)


async def test_a_node_that_starts_later_knows_the_rules(start_strict: StartStrict) -> None:
    await grant(await start_strict(0), "User:alice", name="orders", operation=Operation.READ)
    later = await start_strict(1)
    assert [rule.principal for rule in later.authorizer.rules("default")] == ["User:alice"]


async def test_a_fetch_that_waits_is_asked_again(strict: Broker) -> None:
    root = Client(strict, "root")
    await root.access.create_topic("orders", 1, {})
    rule = await grant(strict, "User:alice", name="orders", operation=Operation.READ)
    alice = Client(strict, "alice")
    parked = asyncio.create_task(alice.ask(fetch_request("orders", {0: 0}, max_wait_ms=20_000, min_bytes=1), 12))
    topic = await root.access.topic(Operation.READ, "orders")
    partition = await root.access.partition(topic, 0)

    async def waits() -> bool:
        return bool(partition.watchers)

    await until(waits)
    await strict.authorizer.remove(system_caller("default"), rule)
    await root.ask(produce_request("orders", {0: batch_of(b"secret")}), 12)
    [row] = (await parked).responses[0].partitions
    assert (row.error_code, bytes(row.records or b"")) == (29, b"")


async def test_each_fetch_of_a_session_is_asked_again(strict: Broker) -> None:
    root, alice = Client(strict, "root"), Client(strict, "alice")
    await root.access.create_topic("orders", 1, {})
    rule = await grant(strict, "User:alice", name="orders", operation=Operation.READ)
    wanted = [FetchTopic(topic="orders", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    began = await alice.ask(FetchRequest(topics=wanted, max_bytes=1 << 20, session_epoch=0), 12)
    assert began.session_id
    assert not began.responses[0].partitions[0].error_code
    await root.ask(produce_request("orders", {0: batch_of(b"secret")}), 12)
    await strict.authorizer.remove(system_caller("default"), rule)
    goes_on = FetchRequest(topics=[], max_bytes=1 << 20, session_id=began.session_id, session_epoch=1)
    [row] = (await alice.ask(goes_on, 12)).responses[0].partitions
    assert (row.error_code, bytes(row.records or b"")) == (29, b"")


async def test_metadata_of_all_topics_leaves_out_what_may_not_be_seen(strict: Broker) -> None:
    root, alice = Client(strict, "root"), Client(strict, "alice")
    for name in ("orders", "payments", "secret"):
        await root.access.create_topic(name, 1, {})
    await grant(strict, "User:alice", name="orders", operation=Operation.READ)
    await grant(strict, "User:alice", name="pay", pattern=PatternType.PREFIXED, operation=Operation.ALTER)
    everything = await alice.ask(MetadataRequest(None, True))
    assert [topic.name for topic in everything.topics] == ["orders", "payments"]
    secret = await root.access.topic(Operation.DESCRIBE, "secret")
    by_name = await alice.ask(MetadataRequest([MetadataRequestTopic(name="secret")], True))
    assert [(t.error_code, t.name, t.topic_id) for t in by_name.topics] == [(29, "secret", bytes(16))]
    by_id = await alice.ask(MetadataRequest([MetadataRequestTopic(topic_id=secret.uuid, name=None)], True))
    assert [(t.error_code, t.name, t.topic_id) for t in by_id.topics] == [(29, None, secret.uuid)]
    unknown = await alice.ask(MetadataRequest([MetadataRequestTopic(name="not-there")], True))
    assert [(t.error_code, t.name) for t in unknown.topics] == [(29, "not-there")]


async def test_authorized_operations_tell_the_truth(strict: Broker) -> None:
    root, alice = Client(strict, "root"), Client(strict, "alice")
    await root.access.create_topic("orders", 1, {})
    await grant(strict, "User:alice", name="orders", operation=Operation.ALL)
    await grant(strict, "User:alice", name="orders", operation=Operation.DELETE, permission=Permission.DENY)
    await grant(strict, "User:alice", resource_type=Of.GROUP, name="readers", operation=Operation.READ)
    ask = MetadataRequest([MetadataRequestTopic(name="orders")], False, True, True)
    answer = await alice.ask(ask, 10)
    assert answer.cluster_authorized_operations == 0
    bits = {op for op in Operation if answer.topics[0].topic_authorized_operations >> op & 1}
    expected = "READ WRITE CREATE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"
    assert bits == {Operation[name] for name in expected.split()}
    [group] = (await alice.ask(DescribeGroupsRequest(["readers"], True))).groups
    assert group.authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
    root_sees = await root.ask(ask, 10)
    assert root_sees.cluster_authorized_operations >> Operation.ALTER & 1


async def test_hosts_count(strict: Broker) -> None:
    root = Client(strict, "root")
    await root.access.create_topic("orders", 1, {})
    await grant(strict, "User:alice", name="orders", operation=Operation.DESCRIBE, host="10.1.1.1")
    ask = MetadataRequest([MetadataRequestTopic(name="orders")], False)
    assert await Client(strict, "alice", host="10.1.1.1").codes(ask) == {0}
    assert await Client(strict, "alice", host="10.1.1.2").codes(ask) == {0, 29}


async def test_refusals_and_changes_have_a_line_in_the_audit_log(
    strict: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.audit")
    eve, root = Client(strict, "eve"), Client(strict, "root")
    for _ in range(50):
        await eve.ask(MetadataRequest([MetadataRequestTopic(name="orders")], True))
    for number in range(100):
        await eve.ask(MetadataRequest([MetadataRequestTopic(name=f"t{number}")], True))
    refused = [record.__dict__ for record in caplog.records if record.message == "refused"]
    assert len(refused) == 30
    assert (refused[0]["principal"], refused[0]["operation"], refused[0]["resource"]) == (
        "User:eve",
        "DESCRIBE",
        "TOPIC",
    )
    await root.ask(CreateAclsRequest([AclCreation(2, "orders", 3, "User:eve", "*", 8, 3)]))
    [changed] = [record.__dict__ for record in caplog.records if record.message == "changed"]
    assert (changed["principal"], changed["acl"]) == (
        "User:root",
        "ALLOW User:eve DESCRIBE on TOPIC orders from any host",
    )


async def test_the_topic_of_offsets_is_made_and_read_by_those_with_the_right_alone(strict: Broker) -> None:
    ask, read = MetadataRequest([MetadataRequestTopic(name=OFFSETS_TOPIC)], True), fetch_request(OFFSETS_TOPIC, {0: 0})
    alice, bob, eve = (Client(strict, name) for name in ("alice", "bob", "eve"))
    await grant(strict, "User:alice", name=OFFSETS_TOPIC, operation=Operation.DESCRIBE)
    await grant(strict, "User:bob", name=OFFSETS_TOPIC, operation=Operation.READ)
    assert await eve.codes(ask) == {0, 29}
    assert (await Client(strict, "root").ask(MetadataRequest(None, True))).topics == []
    assert await alice.codes(ask) == {0}
    assert await alice.codes(read, 12) == {0, 29}
    assert await bob.codes(read, 12) == {0}
    assert await eve.codes(read, 12) == {0, 29}
    assert (await eve.ask(MetadataRequest(None, True))).topics == []
