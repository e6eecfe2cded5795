"""Other programs' lag is the same as ours: kafka_exporter, KMinion and Burrow, for a topic of format `log`.

`make interop` runs it, with a broker of its own. For topics of format `stream` they subtract offsets that are made of
times. Burrow, and KMinion if asked to, read commits off the topic __consumer_offsets (docs/decisions/032).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.broker_process import free_port

from interop.clients import EXPORTERS
from interop.lagging import GROUP, LAG, RECORDS, TOPIC, get, lagging_broker, running, wait_for
from interop.report import Checks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m interop.exporters")
    parser.add_argument("address", nargs="?", help="not used: there is a broker of its own")
    parser.parse_args()
    checks = Checks(", ".join(EXPORTERS.manifests[0].read_text().split()))
    with tempfile.TemporaryDirectory(prefix="headrace-exporters-") as name:
        folder = Path(name)
        with lagging_broker(folder) as (broker, _):
            checks.check("kafka_exporter: same lag", lambda: _compare_kafka_exporter(broker.address))
            for mode in ("adminApi", "offsetsTopic"):
                compare = partial(_compare_kminion, broker.address, folder, mode)
                checks.check(f"KMinion, {mode}: same lag", compare)
            checks.check("Burrow: same ends and same lag", lambda: _compare_burrow(broker.address, folder))
    sys.exit(1 if checks.failures else 0)


def _compare_kafka_exporter(address: str) -> None:
    port = free_port()
    program = str(EXPORTERS.work_dir / "kafka_exporter")
    sample = re.compile(rf'^kafka_consumergroup_lag{{consumergroup="{GROUP}",.*topic="{TOPIC}"}} (\d+)$', re.MULTILINE)
    with running(program, f"--kafka.server={address}", f"--web.listen-address=127.0.0.1:{port}") as said:
        wait_for(lambda: sum(map(int, sample.findall(get(f"http://127.0.0.1:{port}/metrics")))) == LAG, said)


def _compare_kminion(address: str, folder: Path, mode: str) -> None:
    port = free_port()
    config = folder / "kminion.yml"
    config.write_text(
        json.dumps(
            {
                "kafka": {"brokers": [address]},
                "minion": {"consumerGroups": {"enabled": True, "scrapeMode": mode}},
                "exporter": {"host": "127.0.0.1", "port": port},
            }
        )
    )
    with running("env", f"CONFIG_FILEPATH={config}", str(EXPORTERS.work_dir / "kminion")) as said:
        name = f'kminion_kafka_consumer_group_topic_lag{{group_id="{GROUP}",topic_name="{TOPIC}"}}'
        wait_for(lambda: f"{name} {LAG}\n" in get(f"http://127.0.0.1:{port}/metrics"), said)


def _compare_burrow(address: str, folder: Path) -> None:
    port = free_port()
    home = folder / "burrow"
    home.mkdir()
    (home / "burrow.toml").write_text(
        f"""
[zookeeper]
servers = []
[client-profile.local]
kafka-version = "2.1.0"
[cluster.local]
class-name = "kafka"
servers = ["{address}"]
client-profile = "local"
topic-refresh = 10
offset-refresh = 2
[consumer.local]
class-name = "kafka"
cluster = "local"
servers = ["{address}"]
client-profile = "local"
[httpserver.default]
address = "127.0.0.1:{port}"
"""
    )
    with running(str(EXPORTERS.work_dir / "Burrow"), "--config-dir", str(home), cwd=home) as said:
        cluster = f"http://127.0.0.1:{port}/v3/kafka/local"
        wait_for(lambda: sum(json.loads(get(f"{cluster}/topic/{TOPIC}"))["offsets"]) == RECORDS, said)
        lag = f"{cluster}/consumer/{GROUP}/lag"
        wait_for(lambda: json.loads(get(lag))["status"]["totallag"] == LAG, said)


if __name__ == "__main__":
    main()
