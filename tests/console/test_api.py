"""The API with a real broker behind it: topics, messages and groups, read and changed."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from openapi_spec_validator import validate

from headrace.console.api.table import ENDPOINTS
from tests.broker_process import BrokerProcess

API = "/api/v1"
BIG_NUMBER = '{"n": 12345678901234567890}'


def get(console: httpx.Client, path: str, **query: Any) -> Any:
    answer = console.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def create(console: httpx.Client, name: str, partitions: int = 1, **configs: str) -> str:
    answer = console.post(f"{API}/topics", json={"name": name, "partitions": partitions, "configs": configs})
    assert answer.status_code == 200, answer.text
    return name


def produce(broker: BrokerProcess, topic: str, values: list[bytes], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce(topic, value=value, **more)
    assert producer.flush(20) == 0


def values_of(piece: Any) -> list[str]:
    return [message["value"]["text"] for message in piece["messages"]]


def commit(broker: BrokerProcess, group: str, topic: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen = 0
    while seen < count:
        message = consumer.poll(20)
        assert message is not None
        seen += message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


def test_the_description_is_valid_openapi_and_names_every_route(console: httpx.Client) -> None:
    document = get(console, "/openapi.json")
    validate(document)
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert {(one.method, API + one.path) for one in ENDPOINTS} < described


def test_topics_are_found_by_name_a_page_at_a_time(console: httpx.Client, topic: str) -> None:
    names = sorted(create(console, f"{topic}-{number:02}") for number in range(53))
    first = get(console, "/topics", search=topic.upper())
    assert (first["total"], first["pages"], len(first["topics"])) == (53, 2, 50)
    second = get(console, "/topics", search=topic, page=2)
    assert [row["name"] for row in first["topics"] + second["topics"]] == names
    assert get(console, "/topics", search=topic, page=99)["page"] == 2


@pytest.mark.parametrize("form", ["log", "stream"])
def test_a_topic_shows_its_numbers_and_what_differs_from_the_default(
    console: httpx.Client, with_console: BrokerProcess, topic: str, form: str
) -> None:
    create(console, topic, 2, **{"headrace.format": form, "retention.ms": "1234567"})
    produce(with_console, topic, [b"x"] * 10, partition=1)
    found = get(console, f"/topics/{topic}")
    assert found["format"] == form
    assert found["records"] == 10
    assert {"retention.ms": "1234567"}.items() <= {
        c["name"]: c["value"] for c in found["configs"] if c["differs"]
    }.items()
    assert [p["partition"] for p in found["partitions"]] == [0, 1]
    assert found["partitions"][1]["size_bytes"] > 0
    (row,) = get(console, "/topics", search=topic)["topics"]
    assert (row["partitions"], row["format"], row["records"]) == (2, form, 10 if form == "log" else None)


@pytest.mark.parametrize("form", ["log", "stream"])
def test_messages_are_read_from_every_place(
    console: httpx.Client, with_console: BrokerProcess, topic: str, form: str
) -> None:
    create(console, topic, 1, **{"headrace.format": form})
    path = f"/topics/{topic}/messages"
    for start in range(0, 300, 100):
        produce(with_console, topic, [b"%d" % number for number in range(start, start + 100)])
    everything = [str(number) for number in range(300)]
    assert values_of(get(console, path, limit=20)) == everything[-20:]
    oldest = get(console, path, limit=120, **{"from": "oldest"})
    assert values_of(oldest) == everything[:120]
    rest = get(console, path, limit=200, cursor=oldest["cursor"])
    assert values_of(rest) == everything[120:]
    assert rest["at_end"]
    middle = oldest["messages"][57]
    assert values_of(get(console, path, limit=1, offset=middle["offset"], **{"from": "offset"})) == ["57"]
    late = get(console, path, limit=1, time=rest["messages"][-1]["timestamp"] + 3_600_000, **{"from": "time"})
    assert late["messages"] == []
    since = get(console, path, limit=200, time=oldest["messages"][100]["timestamp"], **{"from": "time"})
    assert "100" in values_of(since)
    assert since["messages"][0]["timestamp"] >= oldest["messages"][100]["timestamp"]


def test_a_search_looks_into_key_value_and_headers_and_ends_at_the_end(
    console: httpx.Client, with_console: BrokerProcess, topic: str
) -> None:
    create(console, topic, 3)
    produce(with_console, topic, [b"plain"] * 500)
    produce(with_console, topic, [b"a Needle here"])
    produce(with_console, topic, [b"in the key"], key=b"needle")
    produce(with_console, topic, [b"in a header"], headers=[("where", b"NEEDLE")])
    path = f"/topics/{topic}/messages"
    found = get(console, path, search="needle", **{"from": "oldest"})
    assert sorted(values_of(found)) == ["a Needle here", "in a header", "in the key"]
    assert found["at_end"]
    assert found["scanned"] == 503
    assert values_of(get(console, path, search="needle", **{"from": "oldest", "in": "key"})) == ["in the key"]
    assert values_of(get(console, path, search="Needle", exact_case="1", **{"from": "oldest"})) == ["a Needle here"]
    assert get(console, path, search=".*", **{"from": "oldest"})["messages"] == []


def test_a_live_tail_gives_what_comes_after_its_cursor(
    console: httpx.Client, with_console: BrokerProcess, topic: str
) -> None:
    create(console, topic, 2)
    produce(with_console, topic, [b"before"])
    path = f"/topics/{topic}/messages"
    end = get(console, path, **{"from": "end"})
    assert end["messages"] == []
    assert get(console, path, cursor=end["cursor"], wait_ms=10)["messages"] == []
    produce(with_console, topic, [b"after"])
    assert values_of(get(console, path, cursor=end["cursor"], wait_ms=5000)) == ["after"]


def test_bytes_arrive_as_they_are_and_never_as_markup(
    console: httpx.Client, with_console: BrokerProcess, topic: str
) -> None:
    create(console, topic)
    markup, raw = b"<script>alert(1)</script>", bytes(range(256)) * 200
    produce(with_console, topic, [markup, raw, BIG_NUMBER.encode()], key=b"k")
    first, second, third = get(console, f"/topics/{topic}/messages")["messages"]
    assert first["value"]["text"] == markup.decode()
    assert third["value"]["text"] == BIG_NUMBER
    assert second["value"]["is_cut"]
    assert second["value"]["size"] == len(raw)
    assert raw.startswith(base64.b64decode(second["value"]["base64"]))
    answer = console.get(f"{API}/topics/{topic}/download", params={"partition": 0, "offset": second["offset"]})
    assert answer.content == raw
    assert answer.headers["content-disposition"] == f'attachment; filename="{topic}-0-1-value.bin"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_message_is_sent_with_key_headers_and_partition(console: httpx.Client, topic: str) -> None:
    create(console, topic, 3)
    new = {"key": "k", "value": "v", "headers": [["h", "1"], ["none", None]], "partition": 2}
    sent = console.post(f"{API}/topics/{topic}/messages", json=new).json()
    assert sent == {"topic": topic, "partition": 2, "offset": "0"}
    binary = {"value": base64.b64encode(b"\x00\xff").decode(), "base64": True, "partition": 2}
    assert console.post(f"{API}/topics/{topic}/messages", json=binary).json()["offset"] == "1"
    console.post(f"{API}/topics/{topic}/messages", json={"key": "k", "value": None, "partition": 2})
    first, second, third = get(console, f"/topics/{topic}/messages")["messages"]
    assert (first["key"]["text"], first["value"]["text"]) == ("k", "v")
    assert [(header["name"], (header["value"] or {}).get("text")) for header in first["headers"]] == [
        ("h", "1"),
        ("none", None),
    ]
    assert base64.b64decode(second["value"]["base64"]) == b"\x00\xff"
    assert third["value"] is None
    missing = console.post(f"{API}/topics/{topic}-missing/messages", json=new)
    assert (missing.status_code, missing.json()["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_topics_are_altered_emptied_and_deleted_by_name(
    console: httpx.Client, with_console: BrokerProcess, topic: str
) -> None:
    create(console, topic)
    produce(with_console, topic, [b"x"] * 5)
    assert console.post(f"{API}/topics/{topic}/configs", json={"configs": {"retention.ms": "99"}}).status_code == 200
    changed = {c["name"]: c["value"] for c in get(console, f"/topics/{topic}")["configs"] if c["differs"]}
    assert changed == {"retention.ms": "99"}
    bad = console.post(f"{API}/topics/{topic}/configs", json={"configs": {"retention.ms": "soon"}})
    assert (bad.status_code, bad.json()["code"]) == (400, "INVALID_CONFIG")
    console.post(f"{API}/topics/{topic}/configs", json={"configs": {"retention.ms": None}})
    assert console.post(f"{API}/topics/{topic}/partitions", json={"count": 3}).status_code == 200
    found = get(console, f"/topics/{topic}")
    assert len(found["partitions"]) == 3
    assert not [c for c in found["configs"] if c["differs"]]
    emptied = console.post(
        f"{API}/topics/{topic}/delete-records", json={"offsets": {"0": -1}}, params={"confirm": topic}
    )
    assert emptied.status_code == 200
    assert get(console, f"/topics/{topic}")["records"] == 0
    assert console.delete(f"{API}/topics/{topic}", params={"confirm": "another"}).status_code == 400
    assert console.delete(f"{API}/topics/{topic}", params={"confirm": topic}).status_code == 200
    assert console.get(f"{API}/topics/{topic}").status_code == 404


@pytest.mark.parametrize("form", ["log", "stream"])
def test_a_group_shows_its_lag_in_records_and_is_reset_after_a_preview(
    console: httpx.Client, with_console: BrokerProcess, topic: str, form: str
) -> None:
    create(console, topic, 1, **{"headrace.format": form})
    produce(with_console, topic, [b"x"] * 10)
    group = f"group/{topic}"
    commit(with_console, group, topic, 10)
    produce(with_console, topic, [b"y"] * 4)
    found = get(console, "/groups/detail", group=group)
    assert (found["state"], found["members"], found["lag"]) == ("Empty", [], 4)
    (row,) = get(console, "/groups", search=group)["groups"]
    assert (row["group"], row["lag"], row["topics"]) == (group, 4, 1)
    assert found["history"][0]["points"][-1][1] == 4
    order = {"group": group, "to": "earliest"}
    plan = console.post(f"{API}/groups/reset", json=order).json()
    assert not plan["executed"]
    assert plan["rows"][0]["before"] == found["positions"][0]["committed"]
    assert get(console, "/groups/detail", group=group)["lag"] == 4
    assert console.post(f"{API}/groups/reset", json=order | {"execute": True}).json()["executed"]
    assert get(console, "/groups/detail", group=group)["lag"] == 14
    shifted = console.post(f"{API}/groups/reset", json={"group": group, "to": "shift", "value": 2})
    assert shifted.status_code == (200 if form == "log" else 400)
    assert console.delete(f"{API}/groups/detail", params={"group": group, "confirm": group}).status_code == 200
    assert console.get(f"{API}/groups/detail", params={"group": group}).status_code == 404


def test_a_group_with_members_shows_them_and_is_not_reset(
    console: httpx.Client, with_console: BrokerProcess, topic: str
) -> None:
    create(console, topic, 2)
    produce(with_console, topic, [b"x"])
    consumer = Consumer(
        {
            "bootstrap.servers": with_console.address,
            "group.id": topic,
            "client.id": "one",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(20) is not None
    found = get(console, "/groups/detail", group=topic)
    assert found["state"] == "Stable"
    assert [(member["client_id"], member["assignment"]) for member in found["members"]] == [("one", {topic: [0, 1]})]
    refused = console.post(f"{API}/groups/reset", json={"group": topic, "to": "earliest", "topic": topic})
    assert refused.status_code == 409
    consumer.close()


def test_the_overview_counts_and_says_what_a_crash_would_lose(console: httpx.Client, topic: str) -> None:
    create(console, topic)
    found = get(console, "/overview")
    assert found["topics"] >= 1
    assert found["nodes_here"] == 1
    assert found["durability"] == "everysec"
    assert "second" in found["crash_loss"]


def test_events_carry_the_overview(console: httpx.Client) -> None:
    with console.stream("GET", f"{API}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines) == "event: overview"
        assert next(lines).startswith('data: {"cluster_id":')


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/topics/t/messages", {"limit": "100000"}),
        ("/topics/t/messages", {"cursor": "0:x"}),
        ("/topics/t/messages", {"cursor": "0:1", "wait_ms": "999999"}),
        ("/topics/t/messages", {"search": "x" * 2000}),
        ("/topics", {"page": "-1"}),
        ("/groups/detail", {}),
    ],
)
def test_bad_questions_get_a_sentence(console: httpx.Client, path: str, query: dict[str, str]) -> None:
    answer = console.get(API + path, params=query)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")
