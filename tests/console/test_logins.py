"""The visitor's login is the one that the broker sees: no page without it, and no right but the visitor's own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.broker_process import free_port, wait_until
from tests.console.conftest import console_of
from tests.logins.secured import ADMIN, ADMIN_PASSWORD, SecuredBroker

API = "/api/v1"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path_factory.mktemp("console-secured"), http_port=free_port(), console=True)
    try:
        yield broker.start()
    finally:
        broker.process.end()


@pytest.fixture
def stranger(secured: SecuredBroker) -> Iterator[httpx.Client]:
    with console_of(secured.process) as client:
        yield client


def log_in(client: httpx.Client, user: str, password: str) -> httpx.Response:
    return client.post(f"{API}/session", json={"user": user, "password": password})


def test_nothing_is_shown_without_a_login(stranger: httpx.Client) -> None:
    assert stranger.get(f"{API}/session").json()["is_logged_in"] is False
    for path in ("/overview", "/topics", "/groups", "/nodes", "/security", "/events", "/topics/t/messages"):
        answer = stranger.get(API + path)
        assert (answer.status_code, answer.json()["code"]) == (401, "LOGIN")
    assert stranger.get("/health/ready").status_code == 200
    assert 'id="first">{}</script>' in stranger.get("/").text


def test_the_administrator_logs_in_and_out(stranger: httpx.Client, topic: str) -> None:
    refused = log_in(stranger, ADMIN, "wrong")
    assert refused.status_code == 401
    assert not stranger.cookies
    answer = log_in(stranger, ADMIN, ADMIN_PASSWORD)
    assert answer.json()["user"] == ADMIN
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ADMIN_PASSWORD not in answer.text + cookie
    assert stranger.post(f"{API}/topics", json={"name": topic}).status_code == 200
    assert ADMIN in {user["name"] for user in stranger.get(f"{API}/security").json()["users"]}
    wait_until(lambda: stranger.get(f"{API}/nodes").json()["nodes"][0]["numbers"], "the node tells no numbers")
    cookie = "; ".join(f"{name}={value}" for name, value in stranger.cookies.items())
    assert stranger.delete(f"{API}/session").json()["is_logged_in"] is False
    assert stranger.get(f"{API}/topics", headers={"Cookie": cookie}).status_code == 401


def test_an_event_stream_ends_with_its_session(stranger: httpx.Client) -> None:
    log_in(stranger, ADMIN, ADMIN_PASSWORD)
    with stranger.stream("GET", f"{API}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: overview"
        assert stranger.delete(f"{API}/session").status_code == 200
        assert "event: trouble" in list(lines)


def test_a_user_without_rights_sees_and_does_nothing(
    secured: SecuredBroker, stranger: httpx.Client, topic: str
) -> None:
    secured.create_user("nobody", "a-password-of-nobody")
    log_in(stranger, ADMIN, ADMIN_PASSWORD)
    assert stranger.post(f"{API}/topics", json={"name": topic}).status_code == 200
    stranger.delete(f"{API}/session")
    assert log_in(stranger, "nobody", "a-password-of-nobody").status_code == 200
    assert stranger.get(f"{API}/topics").json()["topics"] == []
    assert stranger.get(f"{API}/topics/{topic}").status_code in (403, 404)
    assert stranger.post(f"{API}/topics", json={"name": f"{topic}-2"}).status_code == 403
    assert stranger.delete(f"{API}/topics/{topic}", params={"confirm": topic}).status_code in (403, 404)
    security = stranger.get(f"{API}/security").json()
    assert security["users"] is None
    assert security["acls"] is None
    assert all(not node["numbers"] for node in stranger.get(f"{API}/nodes").json()["nodes"])


def test_attempts_are_limited_by_address_and_passwords_are_in_no_log(
    secured: SecuredBroker, stranger: httpx.Client
) -> None:
    statuses = [log_in(stranger, "guess", f"guess-{number}").status_code for number in range(12)]
    assert statuses[-1] == 429
    assert "guess-1" not in secured.process.log
    assert ADMIN_PASSWORD not in secured.process.log
