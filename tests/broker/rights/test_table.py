"""The table of rights, walked: each row without the right and with it alone, and every API with no rights at all."""

from __future__ import annotations

from pathlib import Path

from headrace.broker.broker import Broker
from headrace.broker.refusals.apis import REFUSED
from headrace.broker.rights.page import render
from headrace.broker.rights.table import ASKS_NOTHING, ROWS, Row
from headrace.security.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import SPOKEN
from tests.broker.rights.caller import Client, grant, stored
from tests.broker.rights.requests import GROUP, TOPIC, TRIES, TXN, Try, try_of

NAMES = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: TXN,
}


def test_every_api_is_in_the_table_and_every_row_is_tried() -> None:
    rows = {(row.api, row.resource, row.operation) for row in ROWS}
    assert rows == TRIES.keys()
    refused = {key for key in REFUSED if key not in ASKS_NOTHING}
    assert {row.api for row in ROWS} | ASKS_NOTHING.keys() | refused | TRANSACTIONS == SPOKEN.keys()
    assert not ASKS_NOTHING.keys() & {row.api for row in ROWS}


TRANSACTIONS = {24, 25, 26, 28, 66}
"""Answered by a refusal, or with nothing."""


async def prepare(broker: Broker) -> None:
    root = Client(broker, "root")
    if await root.access.find_topic(Operation.DESCRIBE, TOPIC) is None:
        await root.access.create_topic(TOPIC, 2, {})
        await send(root, TRIES[0, ResourceType.TOPIC, Operation.WRITE])
    await send(root, TRIES[8, ResourceType.GROUP, Operation.READ])


def shown(row: Row) -> str:
    return f"{SPOKEN[row.api].name} {row.operation.name} {row.resource.name}"


async def send(client: Client, one: Try) -> set[int]:
    return await client.codes(one.request(), one.version)


async def test_without_a_right_each_request_is_refused_and_changes_nothing(strict: Broker) -> None:
    await prepare(strict)
    before = await stored(strict)
    wrong = {}
    for number, row in enumerate(ROWS):
        one = try_of(row)
        codes = await send(Client(strict, f"poor{number}"), one) - {0}
        right = set() if one.left_out else {row.error}
        is_second = bool(one.besides)
        if codes != right and not (is_second and codes <= {29, 30, 31, 53}):
            wrong[shown(row)] = codes
    assert not wrong
    assert await stored(strict) == before


async def test_each_right_is_missed_by_itself(strict: Broker) -> None:
    """With all that a request needs but the right of the row, it has the row's error."""
    await prepare(strict)
    wrong = {}
    for number, row in enumerate(ROWS):
        one = try_of(row)
        if one.left_out:
            continue
        for kind, operation in one.besides:
            await grant(strict, f"User:some{number}", resource_type=kind, name=NAMES[kind], operation=operation)
        codes = await send(Client(strict, f"some{number}"), one)
        if row.error not in codes:
            wrong[shown(row)] = codes
    assert not wrong


async def test_with_the_right_alone_no_request_is_refused(strict: Broker) -> None:
    wrong = {}
    for number, row in enumerate(ROWS):
        await prepare(strict)
        one = try_of(row)
        for kind, operation in (*one.besides, (row.resource, row.operation)):
            await grant(strict, f"User:one{number}", resource_type=kind, name=NAMES[kind], operation=operation)
        codes = await send(Client(strict, f"one{number}"), one)
        if codes & {29, 30, 31, 53, 65}:
            wrong[shown(row)] = codes
    assert not wrong


async def test_a_dispatched_right_holds_in_every_version(strict: Broker) -> None:
    await prepare(strict)
    wrong = {}
    for row in ROWS:
        if not row.by_dispatch:
            continue
        for version in range(max(SPOKEN[row.api].oldest, row.oldest), SPOKEN[row.api].newest + 1):
            codes = await Client(strict, "poor").codes(try_of(row).request(), version)
            has_no_room = row.api == 35 and version < 3
            if row.error not in codes and not has_no_room:
                wrong[shown(row), version] = codes
    assert not wrong


def test_the_page_of_rights_is_what_the_table_says() -> None:
    assert (Path(__file__).parents[3] / "docs/rights.md").read_text() == render()
