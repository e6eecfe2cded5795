"""Which clients there are, and what each needs to be fetched, built and run.

Every client's program takes the broker's address as its only argument and speaks the lines of `report.py`. What is
downloaded or built goes to `interop/.cache`, never to the user's own caches, so one folder removes all of it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE / ".cache"

Command = tuple[str, ...]


@dataclass(frozen=True)
class Tool:
    """A program that must be on the PATH, who has it, and how root can install it without asking."""

    name: str
    source: str
    install: Command = ()


@dataclass(frozen=True)
class Client:
    """One client: a fetch that fails means a registry that is away, a build that fails is our own mistake."""

    name: str
    tools: tuple[Tool, ...]
    run: Command
    fetch: tuple[Command, ...] = ()
    build: tuple[Command, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    # Both are copied to the client's folder in the cache, where its commands run: package managers write beside them.
    # Manifests name the packages: fetched again only when one of them changes, so a second run needs no registry.
    manifests: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()
    limit_s: int = 300
    logs_in: bool = False
    """Whether its program also logs in, at a broker that the variables LOGIN_* describe."""

    @property
    def work_dir(self) -> Path:
        return CACHE / self.name


JAVA = Tool("java", "a JDK, 17 or later")
MAVEN = Tool("mvn", "Apache Maven 3.8 or later")
JVM = (
    "java",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def _maven(goal: str, *options: str) -> Command:
    return ("mvn", "-q", "-B", f"-Dmaven.repo.local={CACHE / 'maven'}", goal, *options)


COPY_JARS = _maven("dependency:copy-dependencies", "-DoutputDirectory=jars")
GO_ENV = {
    "GOMODCACHE": str(CACHE / "go-modules"),
    "GOCACHE": str(CACHE / "go-build"),
    "GOFLAGS": "-modcacherw -buildvcs=false",
    "GOTOOLCHAIN": "local",
}


def _go(name: str) -> Client:
    folder = HERE / name.replace("-", "_")
    return Client(
        name=name,
        tools=(Tool("go", "Go 1.26 or later"),),
        manifests=(folder / "go.mod", folder / "go.sum"),
        sources=tuple(sorted(folder.glob("*.go"))),
        fetch=(("go", "mod", "download"),),
        build=(("go", "build", "-o", "interop-checks", "."),),
        run=("./interop-checks",),
        env=GO_ENV,
        logs_in=(folder / "logins.go").exists(),
    )


KAFKA_TOOLS = Client(
    name="kafka-tools",
    tools=(JAVA, MAVEN),
    manifests=(HERE / "kafka_tools" / "pom.xml",),
    fetch=(COPY_JARS,),
    run=(sys.executable, "-m", "interop.kafka_tools"),
    logs_in=True,
)
KAFKA_JARS = KAFKA_TOOLS.work_dir / "jars"
"""Apache Kafka itself, its tools included, once they are fetched."""

SPARK = Client(
    name="spark",
    tools=(JAVA, MAVEN),
    manifests=(HERE / "spark" / "pom.xml",),
    fetch=(COPY_JARS,),
    run=(sys.executable, "-m", "interop.spark"),
    logs_in=True,
    limit_s=1800,
)
SPARK_JARS = SPARK.work_dir / "jars"
"""Spark's Kafka connector and delta-spark, once they are fetched."""

LAKE_S3 = Client(
    name="lake-s3",
    tools=(JAVA, Tool("go", "Go 1.26 or later")),
    manifests=(HERE / "lake_s3" / "go.mod", HERE / "lake_s3" / "go.sum"),
    fetch=(("go", "mod", "download"),),
    build=(("go", "build", "-o", "versitygw", "github.com/versity/versitygw/cmd/versitygw"),),
    run=(sys.executable, "-m", "interop.lake_s3"),
    env=GO_ENV,
    limit_s=1800,
)

LAKE_ON_KAFKA = Client(
    name="lake-kafka",
    tools=(JAVA, MAVEN),
    manifests=(HERE / "kafka_tools" / "pom.xml",),
    # The same jars as Kafka's tools, where those are.
    fetch=((sys.executable, "-c", "import sys; from bench.kafka import why_not; sys.exit(why_not() or 0)"),),
    run=(sys.executable, "-m", "interop.lake_kafka"),
    limit_s=1200,
)

COMPACTION = Client(
    name="compaction",
    tools=(JAVA, MAVEN),
    manifests=(HERE / "kafka_tools" / "pom.xml",),
    fetch=LAKE_ON_KAFKA.fetch,
    run=(sys.executable, "-m", "interop.compaction"),
    limit_s=900,
)

KAFKA_STREAMS = Client(
    name="kafka-streams",
    tools=(JAVA, Tool("javac", "a JDK, 17 or later"), MAVEN),
    manifests=(HERE / "kafka_streams" / "pom.xml",),
    sources=(HERE / "kafka_streams" / "src",),
    fetch=(COPY_JARS,),
    build=(("sh", "-c", "javac -Xlint:all -Werror -d classes -cp 'jars/*' $(find src -name '*.java')"),),
    run=(sys.executable, "-m", "interop.kafka_streams"),
    limit_s=900,
)

KAFKA_CONNECT = Client(
    name="kafka-connect",
    tools=(JAVA, MAVEN),
    manifests=(HERE / "kafka_connect" / "pom.xml",),
    fetch=(COPY_JARS,),
    run=(sys.executable, "-m", "interop.kafka_connect"),
    limit_s=900,
)

TRANSACTIONS = Client(
    name="transactions",
    tools=(JAVA, MAVEN),
    manifests=(HERE / "kafka_tools" / "pom.xml",),
    fetch=LAKE_ON_KAFKA.fetch,
    run=(sys.executable, "-m", "interop.transactions"),
    limit_s=900,
)

CONSOLE = Client(
    name="console",
    tools=(
        Tool("node", "Node.js 18 or later"),
        Tool("npm", "Node.js 18 or later"),
        Tool("chromium", "Chromium", ("apt-get", "install", "-y", "--no-install-recommends", "chromium")),
    ),
    manifests=(HERE / "console" / "package.json", HERE / "console" / "package-lock.json"),
    sources=(HERE / "console" / "walk.mjs",),
    fetch=(("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", f"--cache={CACHE / 'npm'}"),),
    run=(sys.executable, "-m", "interop.console"),
)

_DEBIAN_PROMETHEUS = ("apt-get", "install", "-y", "-q", "--no-install-recommends", "prometheus")
PROMETHEUS = Client(
    name="prometheus",
    tools=(
        Tool("prometheus", "the Debian or Ubuntu package `prometheus`", _DEBIAN_PROMETHEUS),
        Tool("promtool", "the Debian or Ubuntu package `prometheus`", _DEBIAN_PROMETHEUS),
    ),
    run=(sys.executable, "-m", "interop.prometheus"),
)

_EXPORTERS = HERE / "exporters" / "modules.txt"
EXPORTERS = Client(
    name="exporters",
    tools=(Tool("go", "Go 1.26 or later"),),
    manifests=(_EXPORTERS,),
    fetch=tuple(("go", "install", module) for module in _EXPORTERS.read_text().split()),
    run=(sys.executable, "-m", "interop.exporters"),
    env={**GO_ENV, "GOBIN": str(CACHE / "exporters")},
)

CLIENTS = (
    CONSOLE,
    PROMETHEUS,
    EXPORTERS,
    Client(
        name="java",
        tools=(JAVA, Tool("javac", "a JDK, 17 or later"), MAVEN),
        manifests=(HERE / "java" / "pom.xml",),
        sources=(HERE / "java" / "src",),
        fetch=(COPY_JARS,),
        build=(("sh", "-c", "javac -Xlint:all -Werror -d classes -cp 'jars/*' $(find src -name '*.java')"),),
        run=(*JVM, "-cp", "classes:jars/*", "headrace.interop.Main"),
        logs_in=True,
    ),
    KAFKA_TOOLS,
    Client(
        name="kafkajs",
        tools=(Tool("node", "Node.js 18 or later"), Tool("npm", "Node.js 18 or later")),
        manifests=(HERE / "kafkajs" / "package.json", HERE / "kafkajs" / "package-lock.json"),
        sources=tuple(sorted((HERE / "kafkajs").glob("*.js"))),
        logs_in=True,
        fetch=(("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", f"--cache={CACHE / 'npm'}"),),
        run=("node", "main.js"),
    ),
    _go("franz-go"),
    _go("sarama"),
    _go("kafka-go"),
    Client(
        name="kcat",
        tools=(
            Tool(
                "kcat",
                "the Debian or Ubuntu package `kcat`",
                install=("apt-get", "install", "-y", "-q", "--no-install-recommends", "kcat"),
            ),
        ),
        run=(sys.executable, "-m", "interop.kcat"),
        logs_in=True,
    ),
    SPARK,
    LAKE_S3,
    LAKE_ON_KAFKA,
    COMPACTION,
    TRANSACTIONS,
    KAFKA_STREAMS,
    KAFKA_CONNECT,
)
