"""Two brokers, one with the straight road and one without, answer random programs alike (decision 31)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from headrace.security.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tests.broker.peers import connect
from tests.broker_process import BrokerProcess
from tests.conftest import NO_RETENTION
from tests.fuzz.normalised import difference
from tests.fuzz.performer import Performer
from tests.fuzz.program import Author
from tests.stores import broker_settings

SHORT, LONG = 2, 150
"""How many programs."""
STEPS = 120
SMALL_CACHE_BYTES = 200_000
"""So that old records are read from the store, and a fetch finds some of its partitions in memory and others not."""
PLENTY = 1e12
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


class Brokers(NamedTuple):
    """One with the straight road, one without."""

    straight: BrokerProcess
    other: BrokerProcess
    has_small_cache: bool
    """Where a limit cuts depends on how batches were joined into entries, once they are read from the store."""


@pytest.fixture(scope="module", params=[False, True], ids=["cached", "uncached"])
def brokers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    options: dict[str, object] = {
        "authorizer": "on",
        "allow_everyone_if_no_acl_found": True,
        "group_initial_rebalance_delay_ms": 0,
        **NO_RETENTION,
        **broker_settings(),
    }
    if request.param:
        options["tail_cache_bytes"] = SMALL_CACHE_BYTES
    straight = BrokerProcess(tmp_path_factory.mktemp("straight") / "data", **options)
    other = BrokerProcess(tmp_path_factory.mktemp("other") / "data", straight_path=False, **options)
    try:
        yield Brokers(straight.start(), other.start(), request.param)
    finally:
        straight.end()
        other.end()


def forbid(broker: BrokerProcess, prefix: str) -> None:
    rules = [
        (ResourceType.TOPIC, f"{prefix}-unreadable", Operation.READ, Permission.DENY),
        (ResourceType.TOPIC, f"{prefix}-unreadable", Operation.ALL, Permission.ALLOW),
        (ResourceType.TOPIC, f"{prefix}-unwritable", Operation.WRITE, Permission.DENY),
        (ResourceType.TOPIC, f"{prefix}-unwritable", Operation.ALL, Permission.ALLOW),
        (ResourceType.GROUP, f"{prefix}-forbidden", Operation.READ, Permission.DENY),
    ]
    made = [
        AclCreation(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
        for kind, name, operation, permission in rules
    ]
    with connect(broker) as line:
        answer = line.send_for(CreateAclsRequest(made), CreateAclsResponse, 3)
    assert [one.error_code for one in answer.results] == [0] * len(made)


def set_quotas(broker: BrokerProcess, *, remove: bool) -> None:
    """Nobody is throttled, but everybody is counted."""
    ops = [OpData(key, PLENTY, remove) for key in QUOTAS]
    entry = EntryData([EntityData("client-id", "fuzz")], ops)
    with connect(broker) as line:
        answer = line.send_for(AlterClientQuotasRequest([entry]), AlterClientQuotasResponse, 1)
    assert [one.error_code for one in answer.entries] == [0]


def compare(brokers: Brokers, seed: int) -> None:
    prefix, now_ms = f"seed{seed}-{time.monotonic_ns()}", int(time.time() * 1000)
    both, has_quotas = (brokers.straight, brokers.other), seed % 3 == 1
    for broker in both:
        forbid(broker, prefix)
        if has_quotas:
            set_quotas(broker, remove=False)
    straight, other = (Performer(broker, prefix, now_ms) for broker in both)
    program = Author(seed, has_limits=not brokers.has_small_cache).program(STEPS)
    for number, (at, step) in enumerate(program):
        found = difference(straight.perform(at, step), other.perform(at, step))
        assert not found, f"seed {seed}, step {number}: {found}\n{step!r:.3000}"
    found = difference(straight.logs(), other.logs())
    assert not found, f"seed {seed}: {found}"
    for performer, broker in zip((straight, other), both, strict=True):
        performer.close()
        if has_quotas:
            set_quotas(broker, remove=True)
        assert "Traceback" not in broker.log


@pytest.mark.parametrize("seed", range(SHORT))
def test_random_programs_are_answered_alike(brokers: Brokers, seed: int) -> None:
    compare(brokers, seed)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_many_random_programs_are_answered_alike(brokers: Brokers, seed: int) -> None:
    compare(brokers, seed)
