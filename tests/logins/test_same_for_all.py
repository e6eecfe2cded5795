"""An unknown user and a wrong password: the same messages and derivations. And logins never hold up the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from headrace.broker.broker import Broker
from headrace.broker.logins.login import Login
from headrace.broker.logins.logins import Logins
from headrace.broker.logins.options import LoginOptions
from headrace.broker.logins.workers import TooManyLogins
from headrace.clock import Clock
from headrace.security.listeners import parse_listener
from headrace.security.names import LoginName
from headrace.security.verifiers import HASHES, User, new_verifier

PASSWORD = "the right one"
LISTENER = parse_listener("in=SASL_SSL://127.0.0.1:9093")
ALICE = User({mechanism: new_verifier(mechanism, PASSWORD, bytes(20)) for mechanism in HASHES})


@pytest.fixture
async def logins() -> AsyncIterator[Logins]:
    users = {LoginName("default", "alice"): ALICE}
    store = SimpleNamespace(
        clock=Clock(), users=users, organisations={"default": None}, login_secret=b"secret", users_get=users.get
    )
    found = Logins(cast("Broker", SimpleNamespace(store=store)), LoginOptions())
    yield found
    found.close()


async def plain(logins: Logins, user: str, password: str) -> str:
    """What a client is told; nothing if it is let in."""
    login = Login(logins, LISTENER, "127.0.0.1")
    login.handshake("PLAIN")
    return (await login.authenticate(f"\0{user}\0{password}".encode())).trouble


async def scram(logins: Logins, user: str, mechanism: str) -> list[str]:
    """The challenge without what is random in it, and how a wrong proof is answered."""
    login = Login(logins, LISTENER, "127.0.0.1")
    login.handshake(mechanism)
    challenge = (await login.authenticate(f"n,,n={user},r=abc".encode())).message.decode()
    nonce, salt, iterations = challenge.split(",")
    verdict = await login.authenticate(f"c=biws,{nonce},p={'A' * 43}=".encode())
    return [nonce[:5], salt, iterations, verdict.trouble]


USERS = ["alice", "nobody", "default/nobody", "acme/alice", "NO SUCH/alice"]


async def test_plain_costs_one_derivation_whoever_it_is(logins: Logins) -> None:
    said = set()
    for number, user in enumerate(USERS, 1):
        said.add(await plain(logins, user, "wrong"))
        assert logins.passwords.derivations == number
    assert said == {"Authentication failed: Invalid username or password"}
    assert await plain(logins, "alice", PASSWORD) == ""
    assert await plain(logins, "alice", PASSWORD) == ""
    assert logins.passwords.derivations == len(USERS) + 1, "what was right is remembered"
    assert await plain(logins, "alice", "wrong") != ""


async def test_too_many_at_once_are_not_told_that_their_password_is_wrong(logins: Logins) -> None:
    """Clients give up at that; one whose connection is closed tries again."""
    crowd = [asyncio.create_task(plain(logins, f"user-{number}", "wrong")) for number in range(300)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyLogins):
        await plain(logins, "alice", PASSWORD)
    said = await asyncio.gather(*crowd, return_exceptions=True)
    assert sum(isinstance(one, TooManyLogins) for one in said) == 300 - 256
    assert await plain(logins, "alice", PASSWORD) == ""


@pytest.mark.parametrize("mechanism", list(HASHES))
async def test_scram_fails_at_the_last_message_whoever_it_is(logins: Logins, mechanism: str) -> None:
    answers = {user: await scram(logins, user, mechanism) for user in USERS}
    assert {(len(salt), iterations, said) for _, salt, iterations, said in answers.values()} == {
        (30, "i=8192", "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        f"{mechanism}")
    }  # fmt: skip
    assert answers == {user: await scram(logins, user, mechanism) for user in USERS}, "a salt that changes is made up"
    assert answers["nobody"][1] == answers["default/nobody"][1]
    assert len({salt for _, salt, _, _ in answers.values()}) == 4
    assert logins.passwords.derivations == 0


async def test_a_hundred_logins_at_once_do_not_hold_up_the_event_loop(logins: Logins) -> None:
    """How long the loop itself is busy at a time, by its own thread's clock: other processes do not count."""
    longest_s = 0.0
    loop = asyncio.get_running_loop()
    run_once = loop._run_once  # type: ignore[attr-defined]

    def measured() -> None:
        nonlocal longest_s
        began = time.thread_time()
        run_once()
        longest_s = max(longest_s, time.thread_time() - began)

    gc.collect()
    gc.freeze()  # as the broker does: what was there before the first request is not searched for garbage
    loop._run_once = measured  # type: ignore[attr-defined]
    tasks = []
    for number in range(100):
        tasks.append(asyncio.create_task(plain(logins, f"user-{number}", "wrong")))
        await asyncio.sleep(0)  # messages of several connections come one after the other
    said = await asyncio.gather(*tasks)
    loop._run_once = run_once  # type: ignore[attr-defined]
    gc.unfreeze()
    assert all(said)
    assert logins.passwords.derivations == 100
    assert longest_s < 0.005, f"{1000 * longest_s:.1f} ms"
