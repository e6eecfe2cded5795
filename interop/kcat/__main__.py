"""kcat against the broker whose address is the first argument."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tests.broker_process import wait_until

from headrace.client import Admin, Cluster
from interop.report import Checks, expect, expect_in

LIMIT_S = 60
COUNT = 200
ADDRESS = sys.argv[1]


def kcat(*options: str, given: str = "") -> str:
    """What kcat writes to stdout when it is run with these options."""
    done = subprocess.run(
        ("kcat", "-b", ADDRESS, *options), input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    sys.stderr.write(done.stderr)
    if done.returncode:
        raise AssertionError(f"kcat {' '.join(options)} exited with {done.returncode}: {done.stderr}")
    return done.stdout


def records(*options: str) -> list[dict[str, Any]]:
    """Records of a topic up to its end, as kcat prints them in JSON."""
    return [json.loads(line) for line in kcat("-C", "-q", "-e", "-J", *options).splitlines()]


def metadata() -> None:
    kcat("-P", "-t", "metadata", given="x")
    found = json.loads(kcat("-L", "-J"))
    expect("brokers", [broker["name"] for broker in found["brokers"]], [ADDRESS])
    expect("controller", found["controllerid"], found["brokers"][0]["id"])
    expect("topics", [topic["topic"] for topic in found["topics"]], ["metadata"])


def round_trip(topic: str, *settings: str) -> None:
    """Keys, values and headers in lines: kcat takes empty ones for null with -Z."""
    lines = [f"key-{n}:value-{'x' * n}" if n % 7 else f"key-{n}:" for n in range(COUNT)]
    kcat("-P", "-t", topic, "-K:", "-Z", "-H", "h=first", "-H", "empty=", *settings, given="\n".join(lines))
    got = records("-t", topic)
    expect("lines", [f"{each['key']}:{each['payload'] or ''}" for each in got], lines)
    expect("null", got[0]["payload"], None)
    expect("headers", got[0]["headers"], ["h", "first", "empty", ""])
    expect("offsets", [each["offset"] for each in got], list(range(COUNT)))


def by_offset_and_time() -> None:
    kcat("-P", "-t", "seek", "-p", "0", "-l", "/dev/stdin", given="\n".join(str(n) for n in range(10)))
    expect("from 7", [each["payload"] for each in records("-t", "seek", "-p", "0", "-o", "7")], ["7", "8", "9"])
    expect("last two", [each["payload"] for each in records("-t", "seek", "-p", "0", "-o", "-2")], ["8", "9"])
    times = [each["ts"] for each in records("-t", "seek", "-p", "0")]
    expect("by time", records("-t", "seek", "-o", f"s@{times[0]}")[0]["offset"], 0)
    expect("in the future", records("-t", "seek", "-o", f"s@{times[-1] + 3_600_000}"), [])
    queried = kcat("-Q", "-t", f"seek:0:{times[0]}")
    expect("query by time", queried.split(), ["seek", "[0]", "offset", "0"])
    expect_in("offset 10", kcat("-Q", "-t", "seek:0:-1"))
    expect_in("offset 0", kcat("-Q", "-t", "seek:0:-2"))


def group_of_two() -> None:
    """Two members share the partitions; together they see everything, and the next one resumes where they committed."""
    with Cluster(ADDRESS) as cluster:
        Admin(cluster).create_topic("group", 4)
    with Member("group") as one, Member("group") as other:
        wait_until(lambda: one.partitions() == other.partitions() == 2, "the members do not share the partitions")
        kcat("-P", "-t", "group", given="\n".join(f"{n}" for n in range(COUNT)))
        wait_until(lambda: len(one.output() + other.output()) == COUNT, "the members do not see every record")
        expect("records seen twice", set(one.output()) & set(other.output()), set())
    kcat("-P", "-t", "group", given="one more")
    with Member("group") as late:
        wait_until(lambda: late.output() == ["one more"], "the next member does not resume")


class Member:
    """A kcat that runs as a member of a group of the topic's name until told to end; it commits by itself."""

    def __init__(self, topic: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-kcat-")
        self._stdout, self._stderr = (Path(self._folder.name) / name for name in ("stdout", "stderr"))
        settings = ("-u", "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300")
        with self._stdout.open("w") as stdout, self._stderr.open("w") as stderr:
            command = ("kcat", "-b", ADDRESS, *settings, "-G", topic, topic)
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def output(self) -> list[str]:
        return self._stdout.read_text().splitlines()

    def partitions(self) -> int:
        """How many it was assigned at last."""
        assigned = re.findall(r"assigned: (.*)", self._stderr.read_text())
        return len(re.findall(r"\[\d+\]", assigned[-1])) if assigned else 0

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_S)
        sys.stderr.write(self._stderr.read_text())
        self._folder.cleanup()


def transactional() -> None:
    """kcat has one transaction for all that it sends. One that was killed leaves it open, and the next aborts it."""
    producing = ("-P", "-t", "transaction", "-X", "transactional.id=t")
    kcat(*producing, given="first")
    with subprocess.Popen(("kcat", "-b", ADDRESS, *producing), stdin=subprocess.PIPE, text=True) as killed:
        try:
            assert killed.stdin is not None
            killed.stdin.write("left open\n" * COUNT)  # kcat reads its input by the kilobyte
            killed.stdin.flush()
            uncommitted = ("-t", "transaction", "-X", "isolation.level=read_uncommitted")
            wait_until(lambda: "left open" in payloads(*uncommitted), "what is not committed is not seen at all")
            expect("committed", payloads("-t", "transaction"), ["first"])
        finally:
            killed.kill()
    kcat(*producing, given="last")
    wait_until(lambda: payloads("-t", "transaction")[-1] == "last", "the last transaction does not show")
    expect("committed", payloads("-t", "transaction"), ["first", "last"])


def payloads(*options: str) -> list[str]:
    return [record["payload"] for record in records(*options)]


def logs_in(mechanism: str) -> None:
    """The right password is let in; of a wrong one kcat says what it is."""

    def listed(password: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": os.environ["LOGIN_CA"],
            "sasl.mechanisms": mechanism,
            "sasl.username": os.environ["LOGIN_USER"],
            "sasl.password": password,
        }
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        command = ("kcat", "-b", os.environ["LOGIN_ADDRESS"], "-L", "-m", "10", *options)
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    expect("exit code", listed(os.environ["LOGIN_PASSWORD"]).returncode, 0)
    expect_in("Authentication failed", listed("wrong").stderr)


def version() -> str:
    shown = subprocess.run(("kcat", "-V"), capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", shown)
    return f"{found[1]} (librdkafka {found[2]})" if found else "?"


def main() -> None:
    checks = Checks(version())
    checks.check("metadata, and a topic created by the first produce", metadata)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        checks.check(f"produce and read back ({codec})", partial(round_trip, f"round-trip-{codec}", "-z", codec))
    idempotent = partial(round_trip, "idempotent", "-X", "enable.idempotence=true")
    checks.check("idempotent produce and read back", idempotent)
    checks.check("read by offset and time", by_offset_and_time)
    checks.check("two members, and resuming from their commits", group_of_two)
    checks.check("transactions, committed and left open", transactional)
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        checks.check(f"login over TLS ({mechanism}), and a wrong password", partial(logs_in, mechanism))
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
