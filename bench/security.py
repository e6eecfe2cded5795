"""What security costs: TLS beside Kafka's TLS, the check of rights, and the event loop while many log in."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from tests.broker_process import free_port
from tests.certificates import Authority

from bench import kafka
from bench.rdkafka import Done, Job, run_job
from bench.report import HEADRACE, Figure, Report
from bench.systems import CpuMeter, Headrace, Kafka, System, has_kafka, run_python, take_turns, topic, values_of
from bench.targets import LIMIT, NO_AUTHORIZER
from headrace.client.acls import LITERAL, AclAdmin, AclRow
from headrace.client.cluster import Cluster
from headrace.client.sasl import Sasl

_PART = "security"
_LOGINS, _LONGEST_TURN_MS = 100, 5.0
_ADMIN, _PASSWORD = "admin", "the administrator of the bench"
_OTHER_RULES = 1_000
_TOPIC_TYPE, _ALL, _ALLOW = 2, 2, 3
_SMALL = {"linger.ms": 0, "batch.num.messages": 1, "acks": "1"}
"""One record in each request."""


def run(report: Report, *, quick: bool) -> None:
    _tls(report, quick=quick)
    _rights(report, quick=quick)
    turns = [float(run_python("bench.login_turns", str(_LOGINS), is_server=True)) for _ in range(1 if quick else 5)]
    limit = [_LONGEST_TURN_MS] * len(turns)
    name = f"{_LOGINS} PLAIN logins over TLS at once: longest turn of the event loop"
    report.add(Figure(_PART, name, "ms CPU", {HEADRACE: turns, LIMIT: limit}, goal="logins"))


# -- TLS --------------------------------------------------------------------------------------------------------


class TlsHeadrace(Headrace):
    """With a second listener that speaks TLS."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.tls_port = free_port()
        certificate, key = authority.sign("headrace")
        listen = [f"plain=PLAINTEXT://127.0.0.1:{free_port()}", f"tls=SSL://127.0.0.1:{self.tls_port}"]
        super().__init__(folder, listen=listen, tls_cert=certificate, tls_key=key)


class TlsKafka(Kafka):
    """The same, from a PEM file with key and certificate."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.tls_port = free_port()
        certificate, key = authority.sign("kafka")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kafka.pem").write_text(key.read_text() + certificate.read_text())
        lines = [
            f"listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},"
            f"TLS://127.0.0.1:{self.tls_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},TLS://127.0.0.1:{self.tls_port}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL",
            f"ssl.keystore.type=PEM\nssl.keystore.location={folder / 'kafka.pem'}",
        ]
        self.node = kafka.KafkaNode(folder / "kafka", "\n".join(lines) + "\n")
        self.port = self.node.port
        self.node.start()


class TlsTurn(msgspec.Struct, frozen=True):
    """What clients did, and the CPU of all servers for it in milliseconds a MB of values."""

    produced: Done
    consumed: Done
    produce_cpu: float
    consume_cpu: float


def _tls(report: Report, *, quick: bool) -> None:
    repeats, total_bytes = (1, 5 * 10**6) if quick else (3, 10**8)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        authority = Authority(folder / "tls")
        systems: list[TlsHeadrace | TlsKafka] = [TlsHeadrace(folder / "headrace", authority)]
        stack.callback(systems[0].stop)
        if not quick and has_kafka(report):
            systems.append(TlsKafka(folder / "kafka", authority))
            stack.callback(systems[1].stop)
        names = [system.name for system in systems]
        for size in (100, 1_000):
            measure = partial(_tls_turn, size, total_bytes // size, authority)
            if not quick:
                take_turns(systems, 1, measure)  # the first work is slower
            found = take_turns(systems, repeats, measure)
            label = "1 KB" if size == 1_000 else f"{size} B"
            produced = values_of(found, lambda turn: turn.produced.rate, names)
            report.add(Figure(_PART, f"librdkafka produces over TLS: {label}", "records/s", produced, goal="tls"))
            consumed = values_of(found, lambda turn: turn.consumed.rate, names)
            report.add(Figure(_PART, f"librdkafka consumes over TLS: {label}", "records/s", consumed, goal="tls"))
            unit = "ms CPU/MB, all servers"
            cpu = values_of(found, lambda turn: turn.produce_cpu, names)
            report.add(Figure(_PART, f"librdkafka produces over TLS: {label}", unit, cpu))
            cpu = values_of(found, lambda turn: turn.consume_cpu, names)
            report.add(Figure(_PART, f"librdkafka consumes over TLS: {label}", unit, cpu))


def _tls_turn(size: int, records: int, authority: Authority, system: TlsHeadrace | TlsKafka) -> TlsTurn:
    config = {"security.protocol": "SSL", "ssl.ca.location": str(authority.ca_file)}
    job = Job("produce", f"127.0.0.1:{system.tls_port}", "bench", records, size, 6, config)
    with topic(system, "bench", 6):
        with CpuMeter(system.pids) as producing:
            produced = run_job(job)
        with CpuMeter(system.pids) as consuming:
            consumed = run_job(msgspec.structs.replace(job, kind="consume"))
    ms_a_mb = 1000 / (records * size / 1e6)
    used = [sum(meter.used_s.values()) * ms_a_mb for meter in (producing, consuming)]
    return TlsTurn(produced, consumed, *used)


# -- rights -----------------------------------------------------------------------------------------------------


class Asking(Headrace):
    """With an authorizer or without; clients do not log in, and are allowed their topic by one rule of many."""

    def __init__(self, folder: Path, *, authorizer: str) -> None:
        self.name = HEADRACE if authorizer == "on" else NO_AUTHORIZER
        admin_port = free_port()
        listen = [f"plain=PLAINTEXT://127.0.0.1:{free_port()}", f"admin=SASL_PLAINTEXT://127.0.0.1:{admin_port}"]
        os.environ["HEADRACE_ADMIN_PASSWORD"] = _PASSWORD
        try:
            super().__init__(folder, listen=listen, authorizer=authorizer, admin_user=_ADMIN)
        finally:
            del os.environ["HEADRACE_ADMIN_PASSWORD"]
        if authorizer == "on":
            login = Sasl("SCRAM-SHA-256", _ADMIN, _PASSWORD)
            with Cluster(f"127.0.0.1:{admin_port}", sasl=login) as cluster:
                names = ["bench", *(f"other-{number}" for number in range(_OTHER_RULES))]
                rules = [AclRow(_TOPIC_TYPE, one, LITERAL, "User:ANONYMOUS", "*", _ALL, _ALLOW) for one in names]
                AclAdmin(cluster).add(rules)


def _rights(report: Report, *, quick: bool) -> None:
    """Fresh brokers in each round: two processes of one program differ by a percent or two on their own."""
    rounds, pairs, requests = (1, 1, 2_000) if quick else (3, 4, 20_000)
    found: dict[str, list[float]] = {HEADRACE: [], NO_AUTHORIZER: []}
    for _ in range(rounds):
        with _asking() as systems:
            take_turns(systems, 1, partial(_small_requests, requests // 4))
            for name, values in take_turns(systems, pairs, partial(_small_requests, requests)).items():
                found[name] += values
    name = f"produce requests of one record, {_OTHER_RULES:,} ACLs"
    report.add(Figure(_PART, name, "us CPU/request, broker process", found, goal="rights"))


@contextlib.contextmanager
def _asking() -> Iterator[list[System]]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        systems: list[System] = []
        for authorizer in ("on", "off"):
            systems.append(Asking(Path(name) / authorizer, authorizer=authorizer))
            stack.callback(systems[-1].stop)
        yield systems


def _small_requests(requests: int, system: System) -> float:
    """The broker's CPU a request, in microseconds."""
    with topic(system, "bench"), CpuMeter(system.pids) as meter:
        run_job(Job("produce", system.address, "bench", requests, 100, config=_SMALL))
    return meter.used_s["broker"] / requests * 1e6
