"""Every setting of the broker: its default, its bounds, its one line of description.

This table is the only place that knows them. Flags, environment variables, the TOML file, `headrace config` and
docs/settings.md are all made from it, so they cannot disagree. A name ends in its unit.
"""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from headrace.cli.logs import LogFormat
from headrace.cli.quantities import show_size, show_time
from headrace.store.embedded_options import Durability

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

LogLevel = Literal["debug", "info", "warning", "error"]


def _says(description: str, low: int | None = None, high: int | None = None) -> Meta:
    return Meta(description=description, ge=low, le=high)


class Settings(Struct, frozen=True, kw_only=True):
    """One broker's settings, all of them valid."""

    host: Annotated[str, _says("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _says("Port to listen on; 0 takes a free one.", 0, 65535)] = 9092
    advertised: Annotated[str, _says("HOST:PORT that clients are told to connect to; empty: where it listens.")] = ""
    node_id: Annotated[int, _says("This broker's id in the cluster; -1 takes a free one.", -1, MAX_INT32)] = 0
    http_port: Annotated[
        int, _says("Port of the HTTP endpoints, which are not there yet: anything but 0 is refused.", 0, 65535)
    ] = 0

    data_dir: Annotated[Path, _says("Directory of the embedded server's files.")] = Path("data")
    redis: Annotated[str, _says("redis://, rediss:// or unix:// URL of your own server; empty: the embedded one.")] = ""
    key_prefix: Annotated[str, _says("First part of every key's name.")] = "headrace"
    durability: Annotated[
        Durability,
        _says(
            "Of the embedded server. always: an acknowledged record is on disk; everysec: a kill of the server can "
            "lose the last moment; memory: nothing is written to disk."
        ),
    ] = "everysec"
    maxmemory_bytes: Annotated[
        int, _says("Memory of the embedded server; 0: half of what the machine or container has.", 0, MAX_INT64)
    ] = 0
    allow_eviction: Annotated[
        bool, _says("Accept a server of your own whose policy evicts keys, and with them records.")
    ] = False
    memory_high_mark_percent: Annotated[
        int, _says("Produces are refused, to be retried, while the server's memory is fuller than this.", 1, 100)
    ] = 90
    store_timeout_ms: Annotated[int, _says("Longest wait for one answer of the server.", 10, MAX_INT32)] = 5_000
    store_wait_ms: Annotated[
        int,
        _says("Longest wait of a request for a server that is away before it gets a retriable error.", 0, MAX_INT32),
    ] = 2_000
    node_lease_ms: Annotated[
        int, _says("A broker that is not heard of for this long counts as gone.", 1_000, MAX_INT32)
    ] = 10_000

    frame_limit_bytes: Annotated[int, _says("Largest request; the connection is closed above.", 1 << 10, 256 << 20)] = (
        100 << 20
    )
    request_budget_bytes: Annotated[
        int, _says("Memory for all requests under way; reading pauses above.", 1 << 10, MAX_INT64)
    ] = 256 << 20
    request_elements_max: Annotated[int, _says("Most array elements in one request.", 1_000, MAX_INT32)] = 100_000
    connections_max: Annotated[int, _says("Most connections at a time.", 1, 1_000_000)] = 1_000
    connections_idle_ms: Annotated[
        int, _says("A connection without a request for this long is closed.", 1_000, MAX_INT64)
    ] = 600_000
    pipeline_max: Annotated[
        int, _says("Most unanswered requests of one connection; reading pauses above.", 1, 100_000)
    ] = 64
    write_buffer_bytes: Annotated[
        int, _says("Unsent answers of one connection; its requests wait above.", 1 << 10, 1 << 30)
    ] = 1 << 20
    shutdown_grace_ms: Annotated[
        int, _says("How long requests under way may take to finish after SIGTERM.", 0, MAX_INT32)
    ] = 10_000

    auto_create_topics: Annotated[bool, _says("Create a topic when a client asks for it by name.")] = True
    default_partitions: Annotated[int, _says("Partitions of a topic that names no number.", 1, 100_000)] = 1
    delete_topics_enabled: Annotated[bool, _says("Let clients delete topics.")] = True
    topics_max: Annotated[int, _says("Most topics.", 1, MAX_INT32)] = 10_000
    topic_partitions_max: Annotated[int, _says("Most partitions of one topic.", 1, 100_000)] = 1_000
    partitions_max: Annotated[int, _says("Most partitions of all topics together.", 1, MAX_INT32)] = 20_000

    message_max_bytes: Annotated[
        int, _says("Largest record batch, unless the topic's max.message.bytes says otherwise.", 0, MAX_INT32)
    ] = 1_048_588
    log_retention_ms: Annotated[
        int, _says("Age at which records go, unless the topic's retention.ms says otherwise; -1: never.", -1, MAX_INT64)
    ] = 604_800_000
    log_retention_bytes: Annotated[
        int,
        _says(
            "Size of a partition above which old records go, unless retention.bytes says otherwise; -1: any.",
            -1,
            MAX_INT64,
        ),
    ] = -1
    retention_check_interval_ms: Annotated[int, _says("How often old records are looked for.", 1, MAX_INT64)] = 300_000
    append_entry_bytes: Annotated[
        int, _says("Waiting batches of a partition are joined into one stream entry up to this size.", 1, 256 << 20)
    ] = 1 << 20
    index_interval_bytes: Annotated[
        int, _says("Log between two entries of the index by time and size.", 1 << 10, MAX_INT32)
    ] = 64 << 10
    snapshot_interval_bytes: Annotated[
        int, _says("Log between two snapshots of the idempotent producers.", 1 << 20, MAX_INT64)
    ] = 8 << 20
    tail_cache_bytes: Annotated[
        int, _says("Memory for the newest batches, from which consumers at the end are served.", 0, MAX_INT64)
    ] = 64 << 20

    fetch_max_bytes: Annotated[
        int, _says("Largest answer to one fetch, whatever the client asks.", 1 << 10, MAX_INT32)
    ] = 55 << 20
    fetch_sessions_max: Annotated[int, _says("Most fetch sessions that are remembered.", 0, 1_000_000)] = 1_000

    group_initial_rebalance_delay_ms: Annotated[
        int, _says("How long a new group waits for more members before its first rebalance.", 0, MAX_INT32)
    ] = 3_000
    group_min_session_timeout_ms: Annotated[
        int, _says("Shortest session timeout that a member may ask for.", 1, MAX_INT32)
    ] = 6_000
    group_max_session_timeout_ms: Annotated[
        int, _says("Longest session timeout that a member may ask for.", 1, MAX_INT32)
    ] = 1_800_000
    group_max_size: Annotated[int, _says("Most members of one group.", 1, MAX_INT32)] = 5_000
    offsets_retention_ms: Annotated[
        int, _says("Age at which the commits of a group without members go.", 1, MAX_INT64)
    ] = 604_800_000
    offsets_retention_check_ms: Annotated[int, _says("How often old commits are looked for.", 1, MAX_INT64)] = 600_000
    offset_metadata_max_bytes: Annotated[int, _says("Longest metadata string of a commit.", 0, MAX_INT32)] = 4_096

    log_level: Annotated[LogLevel, _says("Least level that is logged.")] = "info"
    log_format: Annotated[
        LogFormat, _says("text for people, json for machines; auto: text on a terminal, json elsewhere.")
    ] = "auto"
    lake: Annotated[
        str,
        _says(
            "Folder or s3://, abfss:// or gs:// URL of the tables that hold the old records of topics with "
            "remote.storage.enable; empty: no topic can have it."
        ),
    ] = ""
    lake_storage: Annotated[
        str,
        _says("KEY=VALUE,... for the object store of the lake, such as aws_endpoint_url; else the environment's."),
    ] = ""
    cold_timeout_ms: Annotated[
        int, _says("Longest wait for the lake before a reader gets a retriable error.", 10, MAX_INT32)
    ] = 10_000


# A section begins with the setting that is named here.
_SECTIONS = {
    "host": "Listening",
    "data_dir": "Store",
    "frame_limit_bytes": "Limits of connections and requests",
    "auto_create_topics": "Topics",
    "message_max_bytes": "The log",
    "fetch_max_bytes": "Fetch",
    "group_initial_rebalance_delay_ms": "Groups and their commits",
    "log_level": "Logging and the lake",
}


class Kind(Enum):
    """How a setting's value is written; the value is the word for it in help texts."""

    INTEGER = "INTEGER"
    SIZE = "SIZE"
    TIME = "TIME"
    SWITCH = "true|false"
    CHOICE = "CHOICE"
    TEXT = "TEXT"
    PATH = "PATH"


class Setting(Struct, frozen=True, kw_only=True):
    """What the table says of one setting."""

    name: str
    kind: Kind
    section: str
    description: str
    default: Any
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "HEADRACE_" + self.name.upper()

    def show(self, value: Any) -> str:
        """The value as it could be written in a flag."""
        match self.kind:
            case Kind.SIZE:
                return show_size(value)
            case Kind.TIME:
                return show_time(value)
            case Kind.SWITCH:
                return "true" if value else "false"
            case _:
                return str(value)


def _kind_of(name: str, value_type: Any) -> Kind:
    if value_type is int:
        return Kind.SIZE if name.endswith("_bytes") else Kind.TIME if name.endswith("_ms") else Kind.INTEGER
    return {bool: Kind.SWITCH, str: Kind.TEXT, Path: Kind.PATH}.get(value_type, Kind.CHOICE)


def _read_table() -> dict[str, Setting]:
    table = {}
    section = ""
    hints = get_type_hints(Settings, include_extras=True)
    for name, default in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True):
        value_type, meta = get_args(hints[name])
        section = _SECTIONS.get(name, section)
        table[name] = Setting(
            name=name,
            kind=_kind_of(name, value_type),
            section=section,
            description=meta.description,
            default=default,
            choices=get_args(value_type) if get_origin(value_type) is Literal else (),
            low=meta.ge,
            high=meta.le,
        )
    return table


SETTINGS: dict[str, Setting] = _read_table()


_DOCS_HEAD = """\
# Settings

Each setting has a default. A TOML file (`--config FILE`) overrides it, an environment variable overrides the file, a
flag overrides all. `headrace config` shows every value in force and where it came from. An unknown name is an error,
in the file and among the variables that begin with `HEADRACE_`; an empty variable counts as not set.

Sizes are bytes or `64KiB`, `64MiB`, `1.5GiB`, `10MB`; times are milliseconds or `500ms`, `10s`, `10m`, `1h`, `7d`.
The setting `data_dir` is `data_dir = "data"` in the file, `HEADRACE_DATA_DIR` in the environment and `--data-dir` as a
flag. A switch such as `auto_create_topics` has the flags `--auto-create-topics` and `--no-auto-create-topics`.

`make run` passes `--host`, `--port` and `--data-dir` itself: there it is `make run HOST=... PORT=... DATA=...`, and
`ARGS='--durability always'` for everything else.

This page is made from the table in `src/headrace/cli/settings.py` by `make docs`.
"""


def render_docs() -> str:
    """docs/settings.md, from the table."""
    lines = [_DOCS_HEAD.rstrip()]
    section = ""
    for setting in SETTINGS.values():
        if setting.section != section:
            section = setting.section
            lines += ["", f"## {section}", "", "| setting | default | what it does |", "|---|---|---|"]
        default = f"`{setting.show(setting.default)}`" if str(setting.default) else "empty"
        choices = f" One of {', '.join(f'`{c}`' for c in setting.choices)}." if setting.choices else ""
        lines.append(f"| `{setting.name}` | {default} | {setting.description}{choices} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_docs())
