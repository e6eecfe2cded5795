"""Sentinels that cannot be asked: what is said of them, and who waits for them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from headrace.store.embedded.trial import TrialServer
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.errors import StoreAway
from headrace.store.redis.sentinel import Sentinels
from headrace.store.redis.topology import open_topology
from tests.sentinels import NAME, SENTINEL, WatchedServers
from tests.store.produced import until
from tests.stores import of_one_server

pytestmark = of_one_server


@pytest.mark.parametrize(
    ("login", "words"),
    [("", "NOAUTH"), ("?sentinel_password=wrong", "WRONGPASS"), ("?sentinel_password=stone", "know no primary 'main'")],
)
async def test_a_login_that_sentinels_refuse_is_not_taken_for_their_death(
    login: str, words: str, tmp_path: Path
) -> None:
    sentinel = TrialServer(tmp_path, {}, *SENTINEL)
    (tmp_path / SENTINEL[0]).touch()
    address = parse_address(f"redis+sentinel://{sentinel!r}/main{login}")
    sentinels = Sentinels(address, StoreOptions(), lambda _: None)
    try:
        sentinel.start()
        sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">stone")
        await sentinels.start()
        with pytest.raises(StoreAway, match=words):
            await sentinels.primary()
    finally:
        await sentinels.close()
        sentinel.kill()


async def test_a_dead_sentinel_is_not_waited_for_once_the_others_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection asks for the primary first, also while clients wait for it."""
    monkeypatch.setattr("headrace.store.redis.sentinel._ANSWER_S", 60.0)
    watched = WatchedServers(tmp_path / "servers")
    sentinels: Sentinels | None = None
    try:
        watched.start()
        sentinels = Sentinels(parse_address(watched.url), StoreOptions(), lambda _: None)
        await sentinels.start()
        port = watched.primary.port
        assert (await sentinels.primary()).port == port
        watched.sentinels[0].kill()
        async with asyncio.timeout(30):
            assert (await sentinels.primary()).port == port
        watched.sentinels[1].kill()
        monkeypatch.setattr("headrace.store.redis.sentinel._ANSWER_S", 0.5)
        with pytest.raises(StoreAway, match="no majority"):
            await sentinels.primary()
    finally:
        if sentinels is not None:
            await sentinels.close()
        watched.stop()


async def test_sentinels_that_are_slow_for_a_moment_do_not_keep_a_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.store.redis.sentinel._ANSWER_S", 0.2)
    monkeypatch.setattr("headrace.store.starting._PATIENCE_S", 60.0)
    caplog.set_level(logging.INFO)
    watched = WatchedServers(tmp_path / "servers")
    topology = None
    try:
        watched.start()
        topology = open_topology(parse_address(watched.url), StoreOptions())
        for sentinel in watched.sentinels:
            sentinel.send_signal(SIGSTOP)
        starting = asyncio.create_task(topology.start())
        await until(lambda: "the store is slow; retrying" in caplog.messages or starting.done())
        for sentinel in watched.sentinels:
            sentinel.send_signal(SIGCONT)
        await starting
        assert topology.shards[0].link.address.port == watched.primary.port
    finally:
        if topology is not None:
            await topology.close()
        watched.stop()


async def test_a_sentinel_that_is_gone_is_not_tried_any_more_once_no_other_names_it(tmp_path: Path) -> None:
    watched = WatchedServers(tmp_path / "servers", sentinels=5)
    sentinels: Sentinels | None = None
    try:
        watched.start()
        named, learned = watched.sentinels[:2], watched.sentinels[2:]
        url = f"redis+sentinel://{','.join(map(repr, named))}/{NAME}"
        sentinels = Sentinels(parse_address(url), StoreOptions(), lambda _: None)
        await sentinels.start()
        await until(lambda: {str(place) for place in sentinels._links} == {repr(one) for one in watched.sentinels})
        named[0].kill()
        learned[0].kill()
        for one in (named[1], *learned[1:]):
            one.ask("SENTINEL", "RESET", NAME)
        left = {repr(one) for one in (*named, *learned[1:])}
        await until(lambda: {str(place) for place in sentinels._links} == left == set(map(str, sentinels._ears)))
        assert (await sentinels.primary()).port == watched.primary.port
    finally:
        if sentinels is not None:
            await sentinels.close()
        watched.stop()
