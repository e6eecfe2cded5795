"""The wheel in an empty environment: what users install is what is tested here, without the source tree beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.broker_process import free_port

ROOT = Path(__file__).parents[2]
OUTSIDE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sdist and wheel, built as `make dist` does it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that has the wheel and its locked dependencies alone."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True)
    (wheel,) = dist.glob("*.whl")
    install = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    lock = str(ROOT / "requirements.lock")
    subprocess.run([*install, "--require-hashes", "-r", lock], check=True, env=OUTSIDE)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True, env=OUTSIDE)
    return home / "bin"


@pytest.fixture
def address(installed: Path, tmp_path: Path) -> Iterator[str]:
    """A broker that was started from the wheel."""
    port = free_port()
    command = [str(installed / "headrace"), "serve", "--port", str(port), "--data-dir", "data"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=OUTSIDE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == f"headrace ready on 127.0.0.1:{port}\n"
        yield f"127.0.0.1:{port}"
        broker.terminate()
        assert broker.wait(timeout=60) == 0


def test_serve_produce_consume_and_a_group_from_the_wheel(installed: Path, address: str, tmp_path: Path) -> None:
    def headrace(*words: str, given: str = "") -> str:
        command = [str(installed / "headrace"), *words, "--bootstrap", address]
        ran = subprocess.run(command, input=given, capture_output=True, text=True, cwd=tmp_path, env=OUTSIDE, check=True)
        return ran.stdout

    headrace("topics", "create", "orders", "--partitions", "1")
    headrace("produce", "orders", given="lamp\nchair\n")
    assert headrace("consume", "orders").splitlines() == ["lamp", "chair"]

    consumer = Consumer({"bootstrap.servers": address, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read = [message.value() for message in consumer.consume(2, timeout=60)]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert read == [b"lamp", b"chair"]
    assert "lag         0" in headrace("groups", "describe", "billing")


def test_the_sdist_has_what_building_needs_and_nothing_local(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/headrace/cli/main.py", "requirements.lock"} <= names
    assert not [name for name in names if name.startswith((".venv", "data/", "dist/"))]
