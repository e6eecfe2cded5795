"""Two organisations with the same names: through every API, neither sees or changes anything of the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.metrics.collect import Collector
from headrace.broker.network.server import Server
from headrace.broker.rights.table import ROWS
from headrace.security.acls import Operation, ResourceType
from headrace.security.caller import system_caller
from headrace.security.names import LoginName
from headrace.security.verifiers import User
from headrace.store.cluster.identity import kafka_uuid
from headrace.wire.apis import APIS
from headrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.describe_acls import DescribeAclsRequest
from headrace.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.list_groups import ListGroupsRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.private.alter_organisation import AlterOrganisationRequest
from headrace.wire.private.delete_organisation import DeleteOrganisationRequest
from headrace.wire.private.describe_organisations import DescribeOrganisationsRequest, OrganisationLimit
from tests.broker.peers import batch_of, produce_request
from tests.broker.rights.caller import Client, grant, stored
from tests.broker.rights.conftest import StartStrict
from tests.broker.rights.requests import GROUP, TOPIC, TRIES, try_of

BOTH = ("default", "acme")


@pytest.fixture
async def both(strict: Broker) -> dict[str, Client]:
    """The administrators of two organisations with a topic, a group and a rule of one name each."""
    assert await Client(strict, "root").codes(AlterOrganisationRequest("acme", True)) == {0}
    clients = {name: Client(strict, "root", name) for name in BOTH}
    for name, root in clients.items():
        await root.access.create_topic(TOPIC, 2, {})
        await root.ask(produce_request(TOPIC, {0: batch_of(name.encode())}), 12)
        await root.ask(TRIES[8, ResourceType.GROUP, Operation.READ].request(), 9)
        await grant(strict, f"User:only-in-{name}", name, operation=Operation.READ)
        entry = EntryData([EntityData("user", f"only-in-{name}")], [OpData("producer_byte_rate", 1e9, False)])
        await root.ask(AlterClientQuotasRequest([entry]))
        await strict.store.users.update(LoginName(name, f"only-in-{name}"), lambda _: User())
    return clients


def of(organisation: str, everything: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in everything.items() if f":{organisation}:" in key}


async def rows_of(broker: Broker, organisation: str) -> dict[str, bytes]:
    tables = (broker.store.acls, broker.store.quotas)
    return {field: row for table in tables for field, row in table.of(organisation)}


def texts(value: object) -> str:
    return repr(value)


async def test_no_api_changes_or_shows_anything_of_another_organisation(
    strict: Broker, both: dict[str, Client]
) -> None:
    theirs = both["acme"]
    topic = await both["default"].access.topic(Operation.DESCRIBE, TOPIC)
    secrets = (repr(topic.uuid)[2:-1], kafka_uuid(topic.uuid), topic.ulid, "only-in-default")
    before = of("default", await stored(strict)), await rows_of(strict, "default")
    leaks = {}
    for row in ROWS:
        one = try_of(row)
        for version in {one.version or APIS.get(row.api, (0, 0, 0, 0))[3], one.version}:
            answer = texts(await theirs.ask(one.request(), version))
            if any(secret in answer for secret in secrets):
                leaks[row.api] = answer
    assert not leaks
    assert (of("default", await stored(strict)), await rows_of(strict, "default")) == before
    assert theirs.access.caller.organisation == "acme"


async def test_lists_show_the_own_organisation_alone(both: dict[str, Client]) -> None:
    for name, root in both.items():
        await root.access.create_topic(f"only-in-{name}", 1, {})
        other = "acme" if name == "default" else "default"
        shown = [
            await root.ask(MetadataRequest(None, True)),
            await root.ask(ListGroupsRequest()),
            await root.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1)),
            await root.ask(DescribeClientQuotasRequest([], False)),
            await root.ask(DescribeLogDirsRequest(None)),
        ]
        assert f"only-in-{other}" not in texts(shown)
        assert f"only-in-{name}" in texts(shown[0])


async def test_metrics_count_each_organisation_by_itself(strict: Broker, both: dict[str, Client]) -> None:
    await both["acme"].ask(produce_request(TOPIC, {0: batch_of(b"one more")}), 12)
    samples = list(Collector(strict, Server(strict)).samples())
    labels = [(sample.name, sample.labels) for sample in samples]
    assert len(labels) == len(set(labels)), "no series is there twice"
    appended = {one.labels: one.value for one in samples if one.name == "headrace_topic_records_in_total"}
    assert appended == {("default", TOPIC): 1, ("acme", TOPIC): 2}
    topics = {one.labels: one.value for one in samples if one.name == "headrace_topics"}
    assert topics == {("default",): 1, ("acme",): 1}


async def test_an_id_of_another_organisation_is_unknown(both: dict[str, Client]) -> None:
    topic = await both["default"].access.topic(Operation.DESCRIBE, TOPIC)
    theirs = both["acme"]
    by_id = MetadataRequest([MetadataRequestTopic(topic_id=topic.uuid, name=None)], False)
    assert [row.error_code for row in (await theirs.ask(by_id)).topics] == [100]
    wanted = [FetchTopic(topic_id=topic.uuid, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1)])]
    answer = await theirs.ask(FetchRequest(topics=wanted, max_bytes=1 << 20, session_epoch=-1), 17)
    assert [row.error_code for one in answer.responses for row in one.partitions] == [100]


async def test_a_fetch_session_is_its_owners(both: dict[str, Client], strict: Broker) -> None:
    ours = both["default"]
    wanted = [FetchTopic(topic=TOPIC, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    began = await ours.ask(FetchRequest(topics=wanted, max_bytes=1 << 20, session_epoch=0), 12)
    goes_on = FetchRequest(topics=[], max_bytes=1 << 20, session_id=began.session_id, session_epoch=1)
    for thief in (both["acme"], Client(strict, "alice")):
        assert (await thief.ask(goes_on, 12)).error_code == 70
        await thief.ask(FetchRequest(topics=[], session_id=began.session_id, session_epoch=-1), 12)
    assert (await ours.ask(goes_on, 12)).error_code == 0


@pytest.mark.parametrize(
    "key", [(32, Operation.DESCRIBE_CONFIGS), (33, Operation.ALTER_CONFIGS), (44, Operation.ALTER_CONFIGS)]
)
async def test_what_all_share_needs_rights_in_default(both: dict[str, Client], key: tuple[int, Operation]) -> None:
    one = TRIES[key[0], ResourceType.CLUSTER, key[1]]
    assert 31 in await both["acme"].codes(one.request())
    assert 31 not in await both["default"].codes(one.request())


async def test_quotas_of_addresses_and_organisations_are_those_of_default(both: dict[str, Client]) -> None:
    entry = EntryData([EntityData("ip", "10.1.2.3")], [OpData("connection_creation_rate", 1, False)])
    assert await both["acme"].codes(AlterClientQuotasRequest([entry])) == {31}
    for request in (
        DescribeOrganisationsRequest(None),
        AlterOrganisationRequest("evil", True),
        DeleteOrganisationRequest("default"),
    ):
        assert await both["acme"].codes(request) == {31}


async def test_identities_name_their_organisation(both: dict[str, Client]) -> None:
    join = TRIES[11, ResourceType.GROUP, Operation.READ]
    for name, root in both.items():
        await root.ask(join.request(), 1)
        wanted = [DescribeConfigsResource(32, GROUP, ["headrace.group.id", "headrace.group.locator"])]
        [result] = (await root.ask(DescribeConfigsRequest(wanted))).results
        facts = {config.name: config.value for config in result.configs}
        assert facts["headrace.group.locator"] == f"{name}/consumer-groups/{GROUP}"


async def test_limits_of_an_organisation_hold(strict: Broker, both: dict[str, Client]) -> None:
    root, theirs = both["default"], both["acme"]
    limits = [OrganisationLimit("topics", 2), OrganisationLimit("partitions", 4)]
    assert await root.codes(AlterOrganisationRequest("acme", False, limits)) == {0}
    assert await theirs.codes(CreateTopicsRequest([CreatableTopic("large", 3, 1)])) == {44}
    assert await theirs.codes(CreateTopicsRequest([CreatableTopic("two", 1, 1)])) == {0}
    assert await theirs.codes(CreateTopicsRequest([CreatableTopic("three", 1, 1)])) == {44}
    assert await root.codes(CreateTopicsRequest([CreatableTopic("three", 30, 1)])) == {0}
    [shown] = (await root.ask(DescribeOrganisationsRequest(["acme"]))).organisations
    assert (shown.topics, shown.partitions, {one.key: one.value for one in shown.limits}) == (
        2,
        3,
        {"topics": 2, "partitions": 4},
    )


async def test_what_an_organisation_stored_and_sends_has_limits(strict: Broker, both: dict[str, Client]) -> None:
    root, theirs = both["default"], both["acme"]
    await root.ask(AlterOrganisationRequest("acme", False, [OrganisationLimit("bytes_stored", 10)]))
    async with asyncio.timeout(30):
        while True:
            if strict.store.usage.full:
                break
            await asyncio.sleep(0.02)
    assert strict.store.usage.full == {"acme"}
    produce = produce_request(TOPIC, {0: batch_of(b"x" * 5_000)})
    assert await theirs.codes(produce, 12) == {44}
    assert await root.codes(produce, 12) == {0}
    rates = [OrganisationLimit("bytes_stored", -1), OrganisationLimit("producer_byte_rate", 100)]
    await root.ask(AlterOrganisationRequest("acme", False, rates))
    async with asyncio.timeout(30):
        while True:
            if not strict.store.usage.full:
                break
            await asyncio.sleep(0.02)
    answer = await theirs.ask(produce_request(TOPIC, {0: batch_of(b"x" * 5_000)}), 12)
    assert answer.throttle_time_ms > 1_000
    assert (await root.ask(produce_request(TOPIC, {0: batch_of(b"x" * 5_000)}), 12)).throttle_time_ms == 0


async def test_an_organisation_comes_and_goes_on_all_nodes(start_strict: StartStrict) -> None:
    here, there = await start_strict(0), await start_strict(1)
    root = Client(here, "root")
    assert await root.codes(AlterOrganisationRequest("acme", True)) == {0}
    assert await root.codes(AlterOrganisationRequest("acme", True)) == {92}
    for bad in ("nodes", "security", "Acme", "", "a" * 64, "a/b"):
        assert await root.codes(AlterOrganisationRequest(bad, True)) == {42}

    async def until(present: bool) -> None:
        async with asyncio.timeout(30):
            while True:
                if ("acme" in there.store.organisations) is present:
                    return
                await asyncio.sleep(0.01)

    await until(True)
    theirs = Client(there, "root", "acme")
    await theirs.access.create_topic(TOPIC, 1, {})
    assert await root.codes(DeleteOrganisationRequest("acme")) == {44}
    await theirs.access.delete_topic(await theirs.access.topic(Operation.DELETE, TOPIC))
    await grant(here, "User:alice", "acme")
    assert await root.codes(DeleteOrganisationRequest("acme")) == {0}
    assert await root.codes(DeleteOrganisationRequest("default")) == {42}
    assert await root.codes(DeleteOrganisationRequest("acme")) == {91}
    await until(False)
    assert not theirs.access.is_served
    assert not list(here.store.acls.of("acme"))
    assert system_caller("acme").organisation == "acme"
