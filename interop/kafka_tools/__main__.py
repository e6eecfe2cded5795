"""Kafka's command-line tools, from their jars, against the broker whose address is the first argument."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from interop.clients import JVM, KAFKA_JARS
from interop.report import Checks, expect, expect_in

LIMIT_S = 60
ADDRESS = sys.argv[1]
TOOLS = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}


def tool(name: str, *options: str, given: str = "") -> str:
    """What a tool prints; its name is that of its shell script in Kafka's bin folder."""
    done = subprocess.run(
        (*JVM, "-cp", f"{KAFKA_JARS}/*", TOOLS[name], "--bootstrap-server", ADDRESS, *options),
        input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    sys.stderr.write(f"--- {name} {' '.join(options)}\n{done.stdout}{done.stderr}")
    if done.returncode:
        raise AssertionError(f"{name} {' '.join(options)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def topics() -> None:
    expect_in("Created topic tools", tool("kafka-topics", "--create", "--topic", "tools", "--partitions", "2"))
    tool("kafka-topics", "--alter", "--topic", "tools", "--partitions", "3")
    described = tool("kafka-topics", "--describe", "--topic", "tools")
    expect_in("PartitionCount: 3\tReplicationFactor: 1", described)
    expect("partitions", len(re.findall(r"\tPartition: \d+\tLeader: \d+\tReplicas: \d+\tIsr: \d+", described)), 3)
    expect("listed", tool("kafka-topics", "--list").split(), ["tools"])
    expect("under-replicated", tool("kafka-topics", "--describe", "--under-replicated-partitions").strip(), "")


def configs() -> None:
    topic = ("--entity-type", "topics", "--entity-name", "tools")
    expect_in(
        "Completed updating config", tool("kafka-configs", *topic, "--alter", "--add-config", "retention.ms=60000")
    )
    expect_in("retention.ms=60000 sensitive=false", tool("kafka-configs", *topic, "--describe"))
    tool("kafka-configs", *topic, "--alter", "--delete-config", "retention.ms")
    expect_in("retention.ms=604800000", tool("kafka-configs", *topic, "--describe", "--all"))
    expect_in("All configs for broker", tool("kafka-configs", "--entity-type", "brokers", "--describe", "--all"))


def console() -> None:
    lines = "".join(f"key-{n}\tvalue-{n}\n" for n in range(20))
    tool("kafka-console-producer", "--topic", "tools", "--reader-property", "parse.key=true", given=lines)
    read = tool(
        "kafka-console-consumer", "--topic", "tools", "--from-beginning", "--group", "console",
        "--max-messages", "20", "--formatter-property", "print.key=true",
    )  # fmt: skip
    expect("lines", sorted(read.splitlines()), sorted(lines.splitlines()))


def groups() -> None:
    group = ("--group", "console")
    expect("listed", tool("kafka-consumer-groups", "--list").split(), ["console"])
    described = tool("kafka-consumer-groups", *group, "--describe")
    expect("committed", _sums(described), (20, 20, 0))
    expect_in("Empty", tool("kafka-consumer-groups", *group, "--describe", "--state"))
    reset = ("--reset-offsets", "--execute", "--topic", "tools")
    tool("kafka-consumer-groups", *group, *reset, "--to-earliest")
    expect("after --to-earliest", _sums(tool("kafka-consumer-groups", *group, "--describe")), (0, 20, 20))
    tool("kafka-consumer-groups", *group, *reset, "--to-datetime", "2100-01-01T00:00:00.000")
    expect("after --to-datetime", _sums(tool("kafka-consumer-groups", *group, "--describe")), (20, 20, 0))
    expect_in("Classic", tool("kafka-groups", "--list"))
    forgotten = tool("kafka-consumer-groups", *group, "--delete-offsets", "--topic", "tools")
    expect_in("Request succeeded for deleting offsets", forgotten)
    expect_in("successful", tool("kafka-consumer-groups", *group, "--delete"))
    expect("listed", tool("kafka-consumer-groups", "--list").split(), [])


def _sums(described: str) -> tuple[int, ...]:
    """Committed offset, end and lag of a group over its partitions."""
    rows = [line.split() for line in described.splitlines() if line.startswith("console")]
    return tuple(sum(int(row[column]) for row in rows) for column in (3, 4, 5))


def offsets() -> None:
    ends = tool("kafka-get-offsets", "--topic", "tools").split()
    expect("records", sum(int(end.rsplit(":", 1)[1]) for end in ends), 20)
    newest = tool("kafka-get-offsets", "--topic", "tools", "--time", "max-timestamp").split()
    expect("partitions", len(newest), 3)


def delete_records() -> None:
    wish = '{"version": 1, "partitions": [{"topic": "tools", "partition": 0, "offset": -1}]}'
    path = Path("delete-records.json")
    path.write_text(wish)
    expect_in("low_watermark", tool("kafka-delete-records", "--offset-json-file", str(path)))


def cluster() -> None:
    versions = tool("kafka-broker-api-versions")
    expect_in("Produce(0): 0 to 13 [usable: 13]", versions)
    expect_in("Fetch(1): 4 to 18 [usable: 18]", versions)
    expect_in('"partition":"tools-0"', tool("kafka-log-dirs", "--describe", "--topic-list", "tools"))


def performance() -> None:
    produced = tool(
        "kafka-producer-perf-test", "--topic", "performance", "--num-records", "5000", "--record-size", "200",
        "--throughput", "-1",
    )  # fmt: skip
    expect_in("5000 records sent", produced)
    consumed = tool("kafka-consumer-perf-test", "--topic", "performance", "--num-records", "5000", "--timeout", "20000")
    expect_in(", 5000, ", consumed)


def main() -> None:
    (jar,) = KAFKA_JARS.glob("kafka-tools-[0-9]*.jar")
    checks = Checks(jar.stem.removeprefix("kafka-tools-"))
    checks.check("kafka-topics", topics)
    checks.check("kafka-configs", configs)
    checks.check("kafka-console-producer and -consumer", console)
    checks.check("kafka-consumer-groups and kafka-groups", groups)
    checks.check("kafka-get-offsets", offsets)
    checks.check("kafka-delete-records", delete_records)
    checks.check("kafka-broker-api-versions and kafka-log-dirs", cluster)
    checks.check("kafka-producer- and -consumer-perf-test", performance)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
