"""The console in a real Chromium: every page of a broker with records in Redis and in a lake, checked by axe.

`make interop` runs it. `python -m interop.console --pictures docs/images/console` makes the pictures of the docs, once
the packages are there (`python -m interop console`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from confluent_kafka import Consumer
from PIL import Image
from tests.broker_process import BrokerProcess, free_port
from tests.stores import broker_settings, key_at, redis_beside
from tests.tiered import BROKER, CONFIGS, TieredTopic

from headrace.client import Admin, BrokerUnreachable, Cluster, Producer
from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from interop.clients import CONSOLE

TOPIC, GROUP = "orders", "billing"
_WALK_S = 280
_ITEMS = ("lamp", "rug", "chair", "shelf")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m interop.console")
    parser.add_argument("address", nargs="?", help="not used: the console has a broker of its own")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where to put pictures of the pages")
    pictures: Path | None = parser.parse_args().pictures
    with tempfile.TemporaryDirectory(prefix="headrace-console-") as folder:
        lake = Path(folder) / "lake"
        lake.mkdir()
        served = {"tail_cache_bytes": 1 << 20, "lake": lake, "http_port": free_port(), "console": True}
        settings = {**BROKER, **broker_settings(), **served}
        broker = BrokerProcess(Path(folder) / "data", **settings)
        try:
            code = _walk(broker.start(), lake, int(str(settings["http_port"])), pictures)
        finally:
            broker.end()
    sys.exit(code)


def _walk(broker: BrokerProcess, lake: Path, port: int, pictures: Path | None) -> int:
    stop = threading.Event()
    _fill(broker, lake)
    _fill_strangely(broker, lake)
    writing = threading.Thread(target=_write_on, args=(broker.address, stop))
    writing.start()
    consumer = _read_some(broker.address)
    command = ["node", "walk.mjs", f"http://127.0.0.1:{port}", TOPIC, GROUP]
    if pictures is not None:
        command.append(str(pictures.absolute()))
    try:
        environment = os.environ | {"BROKER_PID": str(broker.pid)}
        done = subprocess.run(command, cwd=CONSOLE.work_dir, env=environment, timeout=_WALK_S, check=False)
    finally:
        stop.set()
        writing.join()
        del consumer  # its broker is gone: it cannot leave
    if pictures is not None:
        for path in sorted(pictures.glob("*.png")):
            _shrink(path)
    return done.returncode


def _fill(broker: BrokerProcess, lake: Path) -> None:
    """Hot and cold records, both formats, and topics enough for a list."""
    tiered = TieredTopic(broker, lake, "measurements", 3, {**CONFIGS, "local.retention.bytes": "50000"})
    tiered.produce(2_000)
    tiered.archive()
    tiered.wait_until_local_from(500)
    tiered.produce(200, first=2_000)
    with Cluster(broker.address) as cluster:
        admin = Admin(cluster)
        admin.create_topic(TOPIC, 3, {"retention.ms": "86400000", "compression.type": "zstd"})
        admin.create_topic("clicks", 2, {"headrace.format": "stream"})
        for name in ("audit-log", "invoices", "payments", "shipments"):
            admin.create_topic(name, 2)
        with Producer(cluster) as producer:
            for number in range(3_000):
                producer.send(TOPIC, _order(number), f"customer-{number % 7}".encode(), [("source", b"shop")])
                producer.send("clicks", b"/basket", b"visitor-%d" % (number % 50))
                producer.send("payments", bytes([0, number % 256, 7]), None)


def _fill_strangely(broker: BrokerProcess, lake: Path) -> None:
    """Records of a stranger, a group of Redis with entries to confirm, and a proof."""
    with Cluster(broker.address) as cluster, Producer(cluster) as producer:
        Admin(cluster).create_topic("hostile", 1)
        markup = b"<script>alert(1)</script><img src=x onerror=alert(1)>"
        producer.send("hostile", markup, b"<b>key</b>", [("<i>name</i>", b"<u>value</u>"), ("none", None)])
        producer.send("hostile", b"\x00\x01\x02\xff" * 100, b"\x00\xff")
        producer.send("hostile", b"x" * 500_000, b"large")
        producer.send("hostile", b"[" * 7_000 + b"]" * 7_000, b"deep")
        producer.send("hostile", "\u202egnp.exe \u05e8\u05e9\u05ea \u65e5\u672c\r\n".encode(), b"other scripts")
        producer.send("hostile", None, b"tombstone")
    with redis_beside(broker) as redis:
        key = key_at("default:{clicks:0}:stream")
        redis.xgroup_create(key, "workers", "0")
        redis.xreadgroup("workers", "worker-1", {key: ">"}, count=5)
    verify_lake(place_of(lake), None)


def _order(number: int) -> bytes:
    items = [{"sku": random.choice(_ITEMS), "price": random.randrange(10, 200)} for _ in range(2)]
    return json.dumps({"order": number, "items": items, "shipped": number % 3 == 0}).encode()


def _write_on(address: str, stop: threading.Event) -> None:
    with contextlib.suppress(BrokerUnreachable, OSError), Cluster(address) as cluster:
        number = 3_000
        while not stop.wait(0.2):
            with Producer(cluster) as producer:
                for _ in range(random.randrange(1, 12)):
                    producer.send(TOPIC, _order(number), f"customer-{number % 7}".encode(), [("source", b"shop")])
                    number += 1


def _read_some(address: str) -> Consumer:
    """A member that has committed a part and stays."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "client.id": "billing-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    seen = 0
    while seen < 2_000:
        message = consumer.poll(30)
        if message is None:
            raise SystemExit("FAILED a consumer got no records")
        seen += message.error() is None
    consumer.commit(asynchronous=False)
    return consumer


def _shrink(path: Path) -> None:
    """A picture of few colours: a quarter of the bytes, and nobody sees it."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()
