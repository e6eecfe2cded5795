"""The doctor's checks of a running broker: advertised addresses, APIs and, with --probe, a record through it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from secrets import token_hex

from headrace.cli.cluster_option import sentence
from headrace.cli.doctor.findings import CheckResult, fail, ok, warn
from headrace.client import Admin, BrokerUnreachable, Cluster, Producer, Reader, UnsupportedApi
from headrace.client.acls import AclAdmin, AclQuery
from headrace.client.admin import BROKER
from headrace.client.connection import ClientSecurity
from headrace.client.errors import PropertyError
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.special_times import EARLIEST

_START = "start one with `make run`, or name another with --bootstrap"


def check_broker(bootstrap: str, timeout_s: float, *, probe: bool, security: ClientSecurity) -> list[CheckResult]:
    """All checks of a broker, up to the first failure, since the rest would fail, too."""
    try:
        context = security.ssl_context()
    except PropertyError as error:
        return [fail("broker", str(error), "correct --client-config")]
    try:
        cluster = Cluster(bootstrap, timeout_s, "headrace-doctor", context, security.sasl)
    except ValueError:
        return [fail("broker", f"{bootstrap!r} is not HOST:PORT", "correct --bootstrap")]
    steps: list[tuple[str, Callable[[Cluster], CheckResult]]] = [
        ("broker", _reachable),
        ("broker addresses", _addresses),
        ("broker APIs", _apis),
        ("ACLs", _acls),
    ]
    if probe:
        steps.append(("round trip", _round_trip))
    findings: list[CheckResult] = []
    with cluster:
        for name, step in steps:
            try:
                findings.append(step(cluster))
            except (BrokerUnreachable, UnsupportedApi, KafkaError) as error:
                said, _, advice = sentence(error, cluster, bootstrap).partition("; ")
                return [*findings, fail(name, said, advice or "check the broker's log")]
    return findings


def _reachable(cluster: Cluster) -> CheckResult:
    begin = time.perf_counter()
    info = Admin(cluster).describe_cluster()
    took_ms = (time.perf_counter() - begin) * 1000
    kind = "headrace" if _is_headrace(cluster) else "a Kafka broker other than Headrace"
    nodes = ", ".join(f"{node.node_id} at {node.host}:{node.port}" for node in info.nodes)
    return ok("broker", f"{kind}, cluster {info.cluster_id}, node {nodes}; answered in {took_ms:.0f} ms")


def _is_headrace(cluster: Cluster) -> bool:
    """Only headrace has configs named after itself."""
    node_id = min(cluster.nodes, default=0)
    with contextlib.suppress(KafkaError, UnsupportedApi):
        return any(
            entry.name.startswith("headrace.") for entry in Admin(cluster).describe_configs(str(node_id), BROKER)
        )
    return False


def _addresses(cluster: Cluster) -> CheckResult:
    """Clients connect to the advertised addresses: each must be reachable."""
    for node_id in sorted(cluster.nodes):
        cluster.node(node_id)
    names = ", ".join(f"{node.host}:{node.port}" for node in cluster.nodes.values())
    return ok("broker addresses", f"{names} reachable from here")


def _apis(cluster: Cluster) -> CheckResult:
    offered = cluster.any_node().versions
    missing = [api.name for key, api in APIS.items() if key not in offered]
    found = f"{len(offered)} offered"
    if missing:
        return warn("broker APIs", f"{found}, without {', '.join(missing)}", "some commands will not work with it")
    return ok("broker APIs", found)


def _acls(cluster: Cluster) -> CheckResult:
    try:
        number = len(AclAdmin(cluster).find(AclQuery()))
    except UnsupportedApi:
        return ok("ACLs", "the broker has no authorizer")
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return ok("ACLs", "not enforced: every client may do everything")
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ok("ACLs", "enforced; this login may not list them")
        raise
    if not number:
        return warn("ACLs", "there are none: only super users may do anything", "add some with `headrace acls add`")
    return ok("ACLs", f"{number:,} rules")


def _round_trip(cluster: Cluster) -> CheckResult:
    """Sends a record through a temporary topic."""
    admin = Admin(cluster)
    topic, value = f"headrace-doctor-{token_hex(6)}", token_hex(16).encode()
    admin.create_topic(topic, 1)
    try:
        begin = time.perf_counter()
        with Producer(cluster) as producer:
            producer.send(topic, value)
        produced = time.perf_counter()
        read = [record.value for _, _, record in Reader(cluster).read({(topic, 0): EARLIEST})]
        consumed = time.perf_counter()
    finally:
        admin.delete_topic(topic)
    if read != [value]:
        return fail("round trip", f"read {len(read)} records instead of the one sent", "check the broker's log")
    times = f"produced in {(produced - begin) * 1000:.1f} ms, read in {(consumed - produced) * 1000:.1f} ms"
    return ok("round trip", f"{times}; topic {topic} deleted")
