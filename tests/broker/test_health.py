"""A node's health pages say what is so, and whoever plays with them disturbs nobody."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

import pytest
import redis
import uvloop

from headrace.broker.http.health import Health
from headrace.broker.http.server import (
    CONNECTIONS_MAX,
    REQUEST_MAX_BYTES,
    HttpAnswer,
    HttpRequest,
    HttpServer,
    answer_json,
)
from headrace.wire.messages.produce import ProduceResponse
from tests.broker import peers
from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker, StartRedis
from tests.faults.steady_producer import SteadyProducer

TIMEOUT_S = 30.0
GOT = HttpRequest("/health/ready", {})
GET = b"GET /health/ready HTTP/1.1\r\nHost: here\r\n\r\n"


class Page(NamedTuple):
    """What was answered."""

    status: int
    content: Any
    headers: dict[str, str]


def ask(port: int, path: str, method: str = "GET", body: bytes | None = None) -> Page:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return Page(answer.status, json.loads(answer.read()), {k.lower(): v for k, v in answer.getheaders()})
    finally:
        connection.close()


def missing(port: int) -> set[str]:
    """What the node says that it lacks."""
    page = ask(port, "/health/ready")
    assert page.status == (200 if page.content["ready"] else 503)
    return set(page.content.get("missing", {}))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_S)


def answer_to(port: int, sent: bytes) -> bytes:
    """All that comes until the node closes; a cut counts as closed."""
    received = b""
    with connect(port) as line:
        try:
            line.sendall(sent)
            while part := line.recv(65536):
                received += part
        except ConnectionError:
            pass
    return received


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("health") / "data", http_port=free_port())
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def port(healthy: BrokerProcess) -> int:
    return int(str(healthy.settings["http_port"]))


def test_a_node_that_serves_is_live_and_ready(port: int) -> None:
    assert ask(port, "/health/live")[:2] == (200, {"live": True})
    page = ask(port, "/health/ready?from=probe")
    assert page[:2] == (200, {"ready": True})
    assert page.headers["content-type"] == "application/json"
    assert page.headers["connection"] == "close"


def test_other_paths_and_methods_get_what_http_says(port: int) -> None:
    for path in ("/", "/health", "/health/ready/", "/metrics/", "/../health/live"):
        assert ask(port, path).status == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        page = ask(port, "/health/live", method, b"x" * 1000)
        assert page.status == 405
        assert page.headers["allow"] == "GET"
    for bad in (
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /health/live\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"\x00\xff\r\n\r\n",
    ):
        assert answer_to(port, bad).startswith(b"HTTP/1.1 400 "), bad
    assert answer_to(port, b"GET /health/live HTTP/2.0\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_request_in_pieces_and_a_second_behind_it_get_one_answer(port: int) -> None:
    with connect(port) as line:
        for byte in GET:
            line.send(bytes([byte]))
        received = b"".join(iter(lambda: line.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 1
    assert answer_to(port, GET * 3).count(b"HTTP/1.1 ") == 1


def test_a_request_that_is_too_large_or_does_not_end_is_cut(port: int) -> None:
    large = b"GET /health/live HTTP/1.1\r\nX: " + b"x" * (REQUEST_MAX_BYTES * 2)
    assert answer_to(port, large).startswith(b"HTTP/1.1 431 ")
    assert answer_to(port, b"x" * (64 << 20)) in (b"", answer_to(port, large))
    assert answer_to(port, GET[:-2]) == b""  # it stays silent; so do we, and close


def test_connections_that_are_held_open_do_not_keep_a_probe_out(port: int) -> None:
    held = [connect(port) for _ in range(CONNECTIONS_MAX * 2)]
    try:
        assert ask(port, "/health/ready").status == 200
        assert held[0].recv(1) == b""  # the oldest made room
    finally:
        for line in held:
            line.close()


def test_hostile_requests_do_not_disturb_a_kafka_client(healthy: BrokerProcess, port: int, topic: str) -> None:
    with SteadyProducer(healthy.address, topic, 1) as producer:
        held = [connect(port) for _ in range(CONNECTIONS_MAX * 2)]
        for line in held[:8]:
            line.sendall(b"GET /health/ready HTTP/1.1\r\n")
        for _ in range(20):
            answer_to(port, b"\x16\x03\x01" + bytes(1 << 20))
            with connect(port) as line:
                line.sendall(GET * 50)
        producer.goes_on()
        for line in held:
            line.close()
        assert missing(port) == set()
    producer.check(healthy.address)
    assert "Traceback" not in healthy.log


def test_a_store_that_is_stopped_is_named_until_it_is_back(start_broker: StartBroker, start_redis: StartRedis) -> None:
    redis, port = start_redis(), free_port()
    start_broker(redis=redis.url, http_port=port, node_lease_ms=1_000)
    assert missing(port) == set()
    redis.stop()
    wait_until(lambda: missing(port) == {"store"}, "the node does not notice")
    assert ask(port, "/health/ready").content["missing"]["store"].startswith("Redis does not answer: ")
    assert ask(port, "/health/live").status == 200
    redis.start()
    wait_until(lambda: missing(port) == set(), "the node is not ready again")


def test_a_node_is_ready_while_any_shard_of_its_cluster_answers(start_broker: StartBroker, tmp_path: Path) -> None:
    port = free_port()
    with running(ClusterOfServers(tmp_path, replicas=0)) as servers:
        start_broker(redis=servers.url, http_port=port)
        servers.owner_of_key("headrace:cluster").kill()
        assert missing(port) == set()
        for server in servers.servers:
            server.kill()
        wait_until(lambda: "store" in missing(port), "the node does not notice")


def test_a_node_is_not_ready_while_its_cluster_takes_no_commands(start_broker: StartBroker, tmp_path: Path) -> None:
    port = free_port()
    with running(ClusterOfServers(tmp_path, replicas=0, options={"cluster-require-full-coverage": "yes"})) as servers:
        start_broker(redis=servers.url, http_port=port)
        lost = next(one for one in servers.servers if one is not servers.owner_of_key("headrace:cluster"))
        lost.kill()
        wait_until(lambda: "store" in missing(port), "the node is ready beside a cluster that is down")
        lost.start()
        wait_until(lambda: missing(port) == set(), "the node is not ready again")


def test_a_password_that_was_changed_is_the_reason_on_the_page_and_once_in_the_log(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    server, port = start_redis(), free_port()
    with redis.Redis(port=server.port) as admin:
        admin.config_set("requirepass", "hush-1")
        broker = start_broker(redis=f"redis://:hush-1@127.0.0.1:{server.port}", http_port=port)
        admin.config_set("requirepass", "hush-2")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(lambda: "WRONGPASS" in _store_trouble(port), "the page does not say why")

        def refused() -> int:
            return int(admin.info("errorstats").get("errorstat_WRONGPASS", {"count": 0})["count"])

        many = refused() + 30
        wait_until(lambda: refused() > many, "the links do not try again")
        lines = [json.loads(line) for line in broker.log.splitlines() if "WRONGPASS" in line]
        told = [line["link"] for line in lines if line["message"] == "redis is unavailable"]
        assert "commands" in told
        assert len(told) == len(set(told))
        assert "hush" not in broker.log
        admin.config_set("requirepass", "hush-1")
        wait_until(lambda: missing(port) == set(), "the node is not ready again")


def _store_trouble(port: int) -> str:
    return str(ask(port, "/health/ready").content.get("missing", {}).get("store", ""))


def test_an_embedded_store_that_hangs_is_named_before_its_links_give_up(start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker(http_port=port, store_timeout_ms=60_000)
    os.kill(broker.valkey_pid, Signals.SIGSTOP)
    try:
        wait_until(lambda: "store" in missing(port), "the node does not notice")
        assert ask(port, "/health/live").status == 200
    finally:
        os.kill(broker.valkey_pid, Signals.SIGCONT)
    wait_until(lambda: missing(port) == set(), "the node is not ready again")


def test_a_node_that_finishes_its_last_requests_is_live_and_not_ready(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> None:
    redis, port = start_redis(), free_port()
    broker = start_broker(redis=redis.url, http_port=port, store_timeout_ms=60_000)
    with peers.connect(broker) as client:
        peers.create_topic(client, topic, 1)
        redis.send_signal(Signals.SIGSTOP)
        try:
            client.ask(peers.produce_request(topic, {0: peers.batch_of(b"last")}), peers.PRODUCE_BY_NAME)
            wait_until(lambda: missing(port) == {"store"}, "the node does not notice")
            broker.send_signal(Signals.SIGTERM)
            wait_until(lambda: "listening" in missing(port), "the node is still ready")
            assert ask(port, "/health/live").status == 200
        finally:
            redis.send_signal(Signals.SIGCONT)
        answer = client.receive()
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert broker.wait() == 0


async def test_a_node_that_starts_is_live_and_names_all_that_it_lacks() -> None:
    health = Health()
    assert (await health.live(GOT)).status == 200
    assert (await health.ready(GOT)).status == 503
    assert set(await health.missing()) == {"store", "lease", "catalogue", "listening"}


async def test_a_page_that_fails_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(_: HttpRequest) -> Any:
        raise ValueError("a bug")

    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer({"/broken": fails})
    await server.start(listener)
    page = await asyncio.to_thread(ask, listener.getsockname()[1], "/broken")
    server.stop()
    assert page.status == 500
    assert "a bug" not in str(page.content)
    assert "a bug" in caplog.text


def test_a_server_that_stops_while_it_answers_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> bytes:
        asked, going_on = asyncio.Event(), asyncio.Event()

        async def waits(_: HttpRequest) -> HttpAnswer:
            asked.set()
            await going_on.wait()
            return answer_json(HTTPStatus.OK, {})

        listener = socket.create_server(("127.0.0.1", 0))
        server = HttpServer({"/health/ready": waits})
        await server.start(listener)
        answered = asyncio.create_task(asyncio.to_thread(answer_to, listener.getsockname()[1], GET))
        await asked.wait()
        server.stop()
        answer = await answered
        going_on.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        return answer

    assert uvloop.run(run()) == b""
    assert not caplog.records


def test_a_port_that_is_taken_is_one_sentence(start_broker: StartBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AssertionError, match=f"127.0.0.1:{port}: Address already in use; choose .* --http-port"):
            start_broker(http_port=port)
