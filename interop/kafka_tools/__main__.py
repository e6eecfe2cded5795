"""Kafka's command-line tools, from their jars, against the broker whose address is the first argument."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from interop.clients import JVM, KAFKA_JARS
from interop.report import Checks, expect, expect_in

LIMIT_S = 60
ADDRESS = sys.argv[1]
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


def tool(name: str, *options: str, given: str = "", address: str = ADDRESS, jvm: tuple[str, ...] = ()) -> str:
    """What a tool prints; its name is that of its shell script in Kafka's bin folder."""
    done = subprocess.run(
        (*JVM, *jvm, "-cp", f"{KAFKA_JARS}/*", TOOLS[name], "--bootstrap-server", address, *options),
        input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    sys.stderr.write(f"--- {name} {' '.join(options)}\n{done.stdout}{done.stderr}")
    if done.returncode:
        raise AssertionError(f"{name} {' '.join(options)} exited with {done.returncode}: {done.stdout}{done.stderr}")
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
    brokers = ("--entity-type", "brokers", "--entity-default")
    tool("kafka-configs", *brokers, "--alter", "--add-config", "log.retention.ms=70000,log.cleanup.policy=[delete]")
    expect_in("log.retention.ms=70000", tool("kafka-configs", *brokers, "--describe"))
    shown = tool("kafka-configs", *topic, "--describe", "--all")
    expect_in("retention.ms=70000", shown)
    expect_in("DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=70000", shown)
    tool("kafka-configs", *brokers, "--alter", "--delete-config", "log.retention.ms,log.cleanup.policy")
    one = ("--entity-type", "brokers", "--entity-name", "0")
    tool("kafka-configs", *one, "--alter", "--add-config", "leader.replication.throttled.rate=1000")
    expect_in("leader.replication.throttled.rate=1000", tool("kafka-configs", *one, "--describe"))
    tool("kafka-configs", *one, "--alter", "--delete-config", "leader.replication.throttled.rate")
    group = ("--entity-type", "groups", "--entity-name", "tools")
    tool("kafka-configs", *group, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    expect_in("share.auto.offset.reset=earliest", tool("kafka-configs", *group, "--describe"))
    expect_in("tools", tool("kafka-configs", "--entity-type", "groups", "--describe"))
    tool("kafka-configs", *group, "--alter", "--delete-config", "share.auto.offset.reset")


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


def nothing_to_do() -> None:
    """What tools ask of every cluster, where there is nothing to elect, to move or to list."""
    expect_in("No partition reassignments found", tool("kafka-reassign-partitions", "--list"))
    one = ("--election-type", "preferred", "--topic", "tools", "--partition", "0")
    expect_in("Valid replica already elected for partitions tools-0", tool("kafka-leader-election", *one))
    expect("users", tool("kafka-configs", "--entity-type", "users", "--describe").strip(), "")
    expect("transactions", len(tool("kafka-transactions", "list").splitlines()), 1)
    seen = tool("kafka-transactions", "describe-producers", "--topic", "tools", "--partition", "0")
    expect_in("LastSequence", seen)


def performance() -> None:
    produced = tool(
        "kafka-producer-perf-test", "--topic", "performance", "--num-records", "5000", "--record-size", "200",
        "--throughput", "-1",
    )  # fmt: skip
    expect_in("5000 records sent", produced)
    consumed = tool("kafka-consumer-perf-test", "--topic", "performance", "--num-records", "5000", "--timeout", "20000")
    expect_in(", 5000, ", consumed)


def _properties(mechanism: str, password: str) -> str:
    """A file that says how to log in."""
    login = {
        "PLAIN": "plain.PlainLoginModule",
        "SCRAM-SHA-256": "scram.ScramLoginModule",
        "SCRAM-SHA-512": "scram.ScramLoginModule",
    }[mechanism]
    path = Path(f"{mechanism}.properties")
    path.touch(mode=0o600)
    path.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={os.environ['LOGIN_CA']}\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{login} required "
        f'username="{os.environ["LOGIN_USER"]}" password="{password}";\n'
    )
    return str(path)


def logs_in(mechanism: str) -> None:
    """The right password is let in; of a wrong one the tool says what it is."""
    right = _properties(mechanism, os.environ["LOGIN_PASSWORD"])
    tool("kafka-topics", "--list", "--command-config", right, address=os.environ["LOGIN_ADDRESS"])
    wrong = _properties(mechanism, "wrong")
    try:
        tool("kafka-topics", "--list", "--command-config", wrong, address=os.environ["LOGIN_ADDRESS"])
    except AssertionError as error:
        expect_in("SaslAuthenticationException", str(error))
    else:
        raise AssertionError("a wrong password was let in")


def token_logs_in() -> None:
    """A token from a file; the tool says of an expired one, or the broker does."""
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

    def listed(name: str) -> str:
        place = Path(os.environ[name]).as_uri()
        path = Path("OAUTHBEARER.properties")
        path.write_text(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nsasl.mechanism=OAUTHBEARER\n"
            f"ssl.truststore.location={os.environ['LOGIN_CA']}\nsasl.oauthbearer.token.endpoint.url={place}\n"
            f"sasl.login.callback.handler.class={handler}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
        )
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={place}"
        options = ("--list", "--command-config", str(path))
        return tool("kafka-topics", *options, address=os.environ["LOGIN_ADDRESS"], jvm=(allowed,))

    listed("LOGIN_TOKEN_FILE")
    try:
        listed("LOGIN_EXPIRED_TOKEN_FILE")
    except AssertionError as error:
        expect_in("SaslAuthenticationException", str(error))
    else:
        raise AssertionError("an expired token was let in")


def scram_users() -> None:
    """kafka-configs makes a user, shows it and takes it away."""
    admin = ("--command-config", _properties("SCRAM-SHA-512", os.environ["LOGIN_PASSWORD"]))
    user = ("--entity-type", "users", "--entity-name", "tina", *admin)

    def users(*options: str) -> str:
        return tool("kafka-configs", *user, *options, address=os.environ["LOGIN_ADDRESS"])

    users("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=tinas-password]")
    expect_in(
        "SCRAM credential configs for user-principal 'tina' are SCRAM-SHA-256=iterations=8192", users("--describe")
    )
    users("--alter", "--delete-config", "SCRAM-SHA-256")
    expect("described", "tina" in users("--describe"), False)


def acls() -> None:
    """kafka-acls adds rules, lists those that fit, and removes them."""
    admin = ("--command-config", _properties("SCRAM-SHA-512", os.environ["LOGIN_PASSWORD"]))

    def rules(*options: str) -> str:
        return tool("kafka-acls", *admin, *options, address=os.environ["LOGIN_ADDRESS"])

    rules(
        "--add",
        "--allow-principal",
        "User:tina",
        "--producer",
        "--topic",
        "tools-",
        "--resource-pattern-type",
        "prefixed",
    )
    rules(
        "--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.9", "--operation", "All", "--topic", "tools-1"
    )
    fitting = rules("--list", "--topic", "tools-1", "--resource-pattern-type", "match")
    expect_in("(principal=User:tina, host=*, operation=WRITE, permissionType=ALLOW)", fitting)
    expect_in("(principal=User:eve, host=10.0.0.9, operation=ALL, permissionType=DENY)", fitting)
    rules("--remove", "--force", "--topic", "tools-1", "--resource-pattern-type", "match")
    expect("left", "User:" in rules("--list", "--topic", "tools-1", "--resource-pattern-type", "match"), False)


def quotas() -> None:
    """kafka-configs sets quotas of users, client ids and addresses, shows them and takes them away."""
    both = ("--entity-type", "users", "--entity-name", "tina", "--entity-type", "clients", "--entity-default")
    tool("kafka-configs", *both, "--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=50")
    shown = tool("kafka-configs", *both, "--describe")
    expect_in("producer_byte_rate=1048576", shown)
    expect_in("request_percentage=50", shown)
    tool("kafka-configs", *both, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    expect("left", "producer_byte_rate" in tool("kafka-configs", *both, "--describe"), False)
    addresses = ("--entity-type", "ips", "--entity-default")
    tool("kafka-configs", *addresses, "--alter", "--add-config", "connection_creation_rate=500")
    expect_in("connection_creation_rate=500", tool("kafka-configs", *addresses, "--describe"))
    tool("kafka-configs", *addresses, "--alter", "--delete-config", "connection_creation_rate")


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
    checks.check("kafka-reassign-partitions, -leader-election and -transactions", nothing_to_do)
    checks.check("kafka-producer- and -consumer-perf-test", performance)
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        checks.check(f"login over TLS ({mechanism}), and a wrong password", partial(logs_in, mechanism))
    checks.check("login over TLS (OAUTHBEARER), and an expired token", token_logs_in)
    checks.check("kafka-configs for users", scram_users)
    checks.check("kafka-acls", acls)
    checks.check("kafka-configs for quotas", quotas)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
