"""What the console refuses, and what it tells the browser to refuse."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.conftest import StartBroker
from tests.console.conftest import console_of

API = "/api/v1"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost.evil.example"])
def test_another_host_name_is_refused(console: httpx.Client, host: str) -> None:
    assert console.get(f"{API}/topics", headers={"Host": host}).status_code in (400, 403)
    assert console.get("/", headers={"Host": host}).status_code in (400, 403)
    assert console.get("/metrics", headers={"Host": host}).status_code in (400, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
)
def test_another_site_changes_nothing(console: httpx.Client, topic: str, headers: dict[str, str]) -> None:
    body = b'{"name": "%s"}' % topic.encode()
    answer = console.post(f"{API}/topics", content=body, headers={"Content-Type": "application/json"} | headers)
    assert answer.status_code in (403, 415)
    assert console.get(f"{API}/topics/{topic}").status_code == 404


def test_the_browser_is_told_to_load_from_here_alone(console: httpx.Client) -> None:
    for path in ("/", "/static/1/app.js", f"{API}/session", f"{API}/nothing"):
        headers = console.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert "style-src 'sha256-" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in console.get("/").headers


def test_files_outside_of_the_static_folder_are_not_served(console: httpx.Client) -> None:
    for path in ("/static/../app.py", "/static/1/../app.py", "/static/%2e%2e/app.py", "/static/1/%2e%2e/app.py"):
        assert console.get(path).status_code == 404
    for path in ("/static/1/..%2fapp.py", "/app.py", "/static/", "/static/1/", "/static/1//etc/passwd"):
        assert console.get(path).status_code == 404


def test_a_browser_keeps_files_for_good_and_gets_others_after_an_upgrade(console: httpx.Client) -> None:
    page = console.get("/")
    assert page.headers["cache-control"] == "no-store", "it has the visitor's own values"
    addresses = re.findall(r'"(/static/[^"]+)"', page.text)
    for address in addresses:
        answer = console.get(address)
        assert (answer.status_code, answer.headers["cache-control"].split(", ")[-1]) == (200, "immutable")
    (script,) = [one for one in addresses if one.endswith("/app.js")]
    older = console.get("/static/an-older-one/app.js")
    assert (older.content, older.headers["cache-control"]) == (console.get(script).content, "no-cache")
    assert older.headers["content-type"].startswith("text/javascript")


def test_bodies_have_a_limit(console: httpx.Client, topic: str) -> None:
    answer = console.post(f"{API}/topics/{topic}/messages", json={"value": "x" * (5 << 20)})
    assert answer.status_code == 413


def test_a_read_only_console_changes_nothing(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(http_port=free_port(), console=True, console_read_only=True)
    with console_of(broker) as console:
        assert console.get(f"{API}/session").json()["read_only"]
        answer = console.post(f"{API}/topics", json={"name": topic})
        assert (answer.status_code, answer.json()["code"]) == (403, "READ_ONLY")
        assert console.post(f"{API}/groups/reset", json={"group": "g", "to": "latest"}).status_code == 200
        assert (
            console.post(f"{API}/groups/reset", json={"group": "g", "to": "latest", "execute": True}).status_code == 403
        )


def test_changes_are_in_the_audit_log_with_their_outcome(
    console: httpx.Client, with_console: BrokerProcess, topic: str
) -> None:
    assert console.post(f"{API}/topics", json={"name": topic}).status_code == 200
    assert console.post(f"{API}/topics", json={"name": topic}).status_code == 409
    assert console.delete(f"{API}/topics/{topic}", params={"confirm": topic}).status_code == 200
    assert console.get(f"{API}/topics").status_code == 200

    def told() -> list[str]:
        return [line for line in with_console.log.splitlines() if "changed by console" in line and topic in line]

    wait_until(lambda: len(told()) >= 3, "the audit log lacks a change")
    created, refused, deleted = told()
    assert "POST /api/v1/topics" in created
    assert "done" in created
    assert "TOPIC_ALREADY_EXISTS" in refused
    assert f"DELETE /api/v1/topics/{topic}" in deleted


def first_values(page: httpx.Response) -> dict[str, Any]:
    """What the page brings along."""
    (block,) = re.findall(r'<script type="application/json" id="first">(.*?)</script>', page.text, re.DOTALL)
    found: dict[str, Any] = json.loads(block)
    return found


def test_the_page_brings_the_session_and_the_first_values(console: httpx.Client) -> None:
    def brings_all() -> bool:
        return first_values(console.get("/")).keys() == {"/session", "/overview"}

    wait_until(brings_all, "the overview never comes at once")
    found = first_values(console.get("/"))
    assert found["/session"] == console.get(f"{API}/session").json()
    assert len(console.get("/").content) < 100_000
