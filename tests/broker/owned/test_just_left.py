"""A thing moves, and the store loses it before its next owner has read it: who left it a moment ago puts it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.owned.contract import Name
from headrace.wire.errors import ErrorCode
from tests.broker.owned.tally import Add, Read
from tests.broker.owned.test_just_owned import LEASE_MS, Two, go_back, let_go, tell, two
from tests.broker.owned.test_runtime import document, rows
from tests.movable_clock import MovableClock
from tests.store.produced import until
from tests.store.servers import Valkey

__all__ = ["two"]

REFUSED = f"refused with {ErrorCode.COORDINATOR_NOT_AVAILABLE}"


async def leave(two: Two) -> None:
    """Nobody has it any more but the store."""
    assert await two.before.ask(two.name.id, Add, "me", 5) == 6
    two.first.nodes.step_down()
    await let_go(two.before)
    two.second.nodes._change([two.second.nodes.me])


@pytest.mark.parametrize("is_empty", [True, False])
async def test_what_the_store_loses_before_the_next_owner_has_read_it_is_put_back(
    valkey: Valkey, two: Two, tmp_path: Path, is_empty: bool
) -> None:
    checkpoint = tmp_path if is_empty else valkey.checkpoint()
    await leave(two)
    await go_back(valkey, two, checkpoint)
    await until(lambda: two.before.runtime.just_left.are_stored)
    assert rows(valkey, two.name.id) == {b"me": b"5"}
    assert document(valkey, two.name.id)[b"total"] == b"6"
    assert two.name in await two.between.runtime.names("default")


async def test_it_is_not_put_over_what_the_next_owner_acknowledged(valkey: Valkey, two: Two) -> None:
    checkpoint = valkey.checkpoint()
    await leave(two)
    assert await two.between.ask(two.name.id, Add, "me", 6) == 12
    await go_back(valkey, two, checkpoint)
    await until(lambda: two.before.runtime.just_left.are_stored)
    assert await two.between.ask(two.name.id, Read) == 12
    assert rows(valkey, two.name.id) == {b"me": b"6"}


async def test_after_a_lease_it_is_forgotten(valkey: Valkey, two: Two, clock: MovableClock) -> None:
    checkpoint = valkey.checkpoint()
    await leave(two)
    clock.advance(LEASE_MS)
    await until(lambda: not two.before.runtime.just_left)
    await go_back(valkey, two, checkpoint)
    assert rows(valkey, two.name.id) == {b"me": b"1"}


async def test_others_wait_until_it_is_put_back(valkey: Valkey, two: Two) -> None:
    is_restored = two.first.nodes.restored.checks[-1]
    checkpoint = valkey.checkpoint()
    await leave(two)
    assert is_restored()
    valkey.kill()
    await until(lambda: not is_restored())
    await go_back(valkey, two, checkpoint)
    await until(is_restored)
    assert rows(valkey, two.name.id) == {b"me": b"5"}


async def test_who_serves_takes_nothing_that_another_node_may_be_about_to_put_back(valkey: Valkey, two: Two) -> None:
    await two.second.nodes.refresh()
    name = next(str(at) for at in range(100) if two.between.runtime.is_mine(Name("default", str(at))))
    await go_back(valkey, two, valkey.checkpoint())
    assert await two.between.ask(name, Add, "me", 1) == REFUSED
    assert await two.before.ask(two.name.id, Read) == 1
    await tell(two.first, two.second)
    assert await two.between.ask(name, Add, "me", 1) == 1


async def test_who_serves_does_not_wait_for_that_for_long(valkey: Valkey, two: Two, clock: MovableClock) -> None:
    await two.second.nodes.refresh()
    await go_back(valkey, two, valkey.checkpoint())
    name = next(str(at) for at in range(100) if two.between.runtime.is_mine(Name("default", str(at))))
    assert await two.between.ask(name, Add, "me", 1) == REFUSED
    for _ in range(8):
        clock.advance(LEASE_MS // 4)
        await two.second.nodes.renew()
        await two.first.nodes.renew()
    assert await two.between.ask(name, Add, "me", 1) == 1
