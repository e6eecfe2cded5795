"""The files in deploy/: settings that exist, ports and labels that agree, probes that are served, units to verify."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.broker.http.health import Health
from headrace.cli.settings.layers import load

DEPLOY = Path(__file__).parents[2] / "deploy"
GRACE_S = 10
"""The default of `shutdown_grace_ms`: a node needs this long, and some time to leave the store."""


def settings_of(environment: dict[str, str]) -> Any:
    """What the broker makes of variables; an unknown one is an error."""
    return load(None, environment, {}).settings


@pytest.fixture
def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes/headrace.yaml").read_text())
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


@pytest.fixture
def pod(manifests: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = manifests["StatefulSet", "headrace"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    return found


def test_a_pod_gets_settings_that_exist(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    from_elsewhere = {"HEADRACE_NODE_ID": "2", "HEADRACE_REDIS": "redis://store:6379/0"}
    values = {one["name"]: one.get("value", from_elsewhere.get(one["name"], "x")) for one in container["env"]}
    values["HEADRACE_ADVERTISED"] = re.sub(r"\$\((\w+)\)", "x", values["HEADRACE_ADVERTISED"])
    ours = {name: value for name, value in values.items() if name.startswith("HEADRACE_")}
    settings = settings_of(ours)
    assert from_elsewhere.keys() <= ours.keys()
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"kafka": settings.port, "http": settings.http_port}
    assert settings.advertised.endswith(f":{settings.port}")


def test_probes_ask_for_pages_that_a_node_serves(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    for probe, path in (("readinessProbe", "/health/ready"), ("livenessProbe", "/health/live")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
        assert path in Health().routes


def test_services_budget_and_pods_mean_each_other(
    manifests: dict[tuple[str, str], dict[str, Any]], pod: dict[str, Any]
) -> None:
    stateful = manifests["StatefulSet", "headrace"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget", "headrace"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget", "headrace"]["spec"]["maxUnavailable"] == 1
    for name in ("headrace", stateful["serviceName"]):
        assert manifests["Service", name]["spec"]["selector"] == labels
    assert manifests["Service", stateful["serviceName"]]["spec"]["clusterIP"] == "None"
    advertised = next(one["value"] for one in pod["containers"][0]["env"] if one["name"] == "HEADRACE_ADVERTISED")
    assert f".{stateful['serviceName']}." in advertised


def test_every_stop_has_time_to_hand_over(pod: dict[str, Any], compose: dict[str, Any]) -> None:
    waits = [pod["terminationGracePeriodSeconds"]]
    waits += [int(one["stop_grace_period"][:-1]) for name, one in compose["services"].items() if name != "valkey"]
    for unit in (DEPLOY / "systemd").glob("*.service"):
        waits += [int(found) for found in re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)]
    assert len(waits) == 6
    assert min(waits) > GRACE_S + 15


def test_compose_starts_nodes_with_ids_ports_and_addresses_of_their_own(compose: dict[str, Any]) -> None:
    nodes = [one for name, one in compose["services"].items() if name.startswith("node-")]
    found = [settings_of(one["environment"]) for one in nodes]
    assert [one.node_id for one in found] == [0, 1, 2]
    for one, settings in zip(nodes, found, strict=True):
        assert one["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]
        assert settings.advertised == f"localhost:{settings.port}"
        assert f":{settings.http_port}/health/ready" in one["healthcheck"]["test"][-1]
    assert len({settings.port for settings in found}) == len(found)


def test_the_container_is_built_from_files_that_are_there() -> None:
    lines = (DEPLOY / "container/Containerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in shlex.split(line)[1:-1]]
    assert copied
    assert all((DEPLOY.parent / name).exists() for name in copied)
    environment = next(line for line in lines if line.startswith("ENV"))
    assert settings_of(dict(one.split("=") for one in shlex.split(environment)[1:])).http_port == 9080


@pytest.mark.parametrize("unit", ["headrace.service", "headrace@.service"])
def test_systemd_takes_the_units(unit: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / "systemd" / unit).read_text()
    here = tmp_path / unit
    here.write_text(text.replace("/opt/headrace/bin/headrace", sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_units_start_again_for_as_long_as_the_store_is_away() -> None:
    for unit in (DEPLOY / "systemd").glob("*.service"):
        head, _, service = unit.read_text().partition("[Service]")
        assert "\nStartLimitIntervalSec=0\n" in head
        assert "\nRestart=" in service


def test_pods_get_no_variables_of_services(pod: dict[str, Any]) -> None:
    assert pod["enableServiceLinks"] is False


def test_pods_meet_the_restricted_standard_of_kubernetes(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["automountServiceAccountToken"] is False


def test_an_image_that_was_built_on_the_machine_is_used(pod: dict[str, Any]) -> None:
    assert pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_compose_comes_back_with_the_machine(compose: dict[str, Any]) -> None:
    assert {one["restart"] for one in compose["services"].values()} == {"unless-stopped"}


def test_units_pass_flags_that_exist() -> None:
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
        _, command, *flags = shlex.split(line)
        assert command == "serve"
        names = [flag.removeprefix("--").replace("-", "_") for flag in flags[::2]]
        assert set(names) <= {"config", "data_dir", "node_id"}


def test_a_node_that_the_kernel_ends_for_its_memory_ends_no_other() -> None:
    assert "\nOOMPolicy=continue\n" in (DEPLOY / "systemd" / "headrace.service").read_text()
