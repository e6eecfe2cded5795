"""Every setting of the broker: its default, its bounds, its one line of description.

Flags, environment variables, the TOML file, `headrace config` and docs/settings.md are all made from this table, so
they cannot disagree. The default of what a room is told stands in that room's options and nowhere else, so a room that
is used by itself does what the command does. A name ends in its unit.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from headrace.broker.logins.options import LoginOptions
from headrace.broker.options import AuthorizerMode, BrokerOptions
from headrace.cli.logs import LogFormat
from headrace.cli.settings.setting import Setting, ValueKind
from headrace.groups.settings import GroupSettings
from headrace.store.embedded.options import DEFAULT_DURABILITY, Durability
from headrace.store.options import StoreOptions

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

LogLevel = Literal["debug", "info", "warning", "error"]


def _says(description: str, low: int | None = None, high: int | None = None) -> Meta:
    return Meta(description=description, ge=low, le=high)


_BROKER, _STORE, _GROUPS = BrokerOptions(), StoreOptions(), GroupSettings()
_LOGINS = LoginOptions()


class Settings(Struct, frozen=True, kw_only=True):
    """One broker's settings, all of them valid."""

    host: Annotated[str, _says("Address to listen on.")] = _BROKER.host
    port: Annotated[int, _says("Port to listen on; 0 picks a free one.", 0, 65535)] = _BROKER.port
    advertised: Annotated[str, _says("HOST:PORT for clients to connect to; empty: the listening address.")] = ""
    node_id: Annotated[int, _says("This node's id in the cluster; -1 picks a free one.", -1, MAX_INT32)] = 0
    nodes: Annotated[
        int,
        _says(
            "Nodes on this machine, each a process with its own port: `port`, `port` + 1 and so on, `advertised` and "
            "`node_id` likewise, and `http_port` without a console.",
            1,
            256,
        ),
    ] = 1
    rack: Annotated[
        str, _says("Rack or zone of this node, as clients are shown it; replicas are spread over racks.")
    ] = ""
    http_host: Annotated[str, _says("Address of the HTTP endpoints.")] = _BROKER.host
    http_port: Annotated[
        int, _says("Port of the HTTP endpoints `/health/live`, `/health/ready` and `/metrics`; 0: none.", 0, 65535)
    ] = 0
    console: Annotated[
        bool, _says("The console on `http_port`, for all nodes, where the extra headrace[console] is installed.")
    ] = True
    console_read_only: Annotated[bool, _says("The console changes nothing.")] = False
    metrics_token_file: Annotated[
        str,
        _says(
            "File with the bearer token of `/metrics`; without one it is served on loopback alone. "
            "A file that others cannot read."
        ),
    ] = ""
    metrics_names_max: Annotated[
        int, _says("Topics and groups with metrics of their own; all others are counted together.", 0, 1_000_000)
    ] = _BROKER.metrics_names_max
    metrics_partitions: Annotated[bool, _says("Metrics of each partition, too.")] = _BROKER.metrics_partitions
    tracing_endpoint: Annotated[
        str,
        _says(
            "OTLP/HTTP address that spans of requests are sent to, such as http://127.0.0.1:4318/v1/traces; needs the "
            "extra headrace[tracing]; empty: no tracing."
        ),
    ] = ""
    tracing_one_in: Annotated[int, _says("One produce or fetch in so many is traced.", 1, 1_000_000_000)] = 100
    metrics_interval_ms: Annotated[
        int, _says("How often lag and other metrics that have to be read from the store are counted.", 100, 3_600_000)
    ] = _BROKER.metrics_interval_ms

    listen: Annotated[
        tuple[str, ...],
        _says(
            "Listener NAME=PROTOCOL://HOST:PORT with protocol PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, and options "
            "behind commas: advertised=HOST:PORT, client-auth=none|requested|required, proxy-from=NETWORK,..., "
            "mechanisms=NAME,.... May be given several times. Nothing else is opened then, unless `host` or `port` is "
            "set, too: they stand for a PLAINTEXT listener `default`."
        ),
    ] = ()
    allow_plaintext: Annotated[
        bool, _says("Allow PLAINTEXT and SASL_PLAINTEXT listeners that other machines can reach.")
    ] = False
    tls_cert: Annotated[
        str, _says("PEM file with the broker's certificate and its chain; read again when it changes, or at SIGHUP.")
    ] = _LOGINS.tls_cert
    tls_key: Annotated[str, _says("PEM file with its private key; empty: in the file of the certificate.")] = (
        _LOGINS.tls_key
    )
    tls_ca: Annotated[str, _says("PEM file with the authorities that client certificates are checked against.")] = (
        _LOGINS.tls_ca
    )
    tls_principal_rules: Annotated[
        str, _says("How a client certificate's name becomes a user, as Kafka's ssl.principal.mapping.rules.")
    ] = _LOGINS.tls_principal_rules
    tls_handshakes_per_second: Annotated[
        int, _says("TLS handshakes that are begun per second; more wait.", 1, 100_000)
    ] = _LOGINS.tls_handshakes_per_second
    login_timeout_ms: Annotated[
        int, _says("Time from connecting to the end of the login; above it, the connection is closed.", 100, MAX_INT32)
    ] = _LOGINS.login_timeout_ms
    unauthenticated_max: Annotated[
        int, _says("Maximum connections before their login; then the oldest make room.", 1, 1_000_000)
    ] = _LOGINS.unauthenticated_max
    unauthenticated_per_address_max: Annotated[int, _says("The same per address of clients.", 1, 1_000_000)] = (
        _LOGINS.unauthenticated_per_address_max
    )
    connections_max_reauth_ms: Annotated[
        int, _says("How long a SASL login holds; then the client has to log in again; 0: for ever.", 0, MAX_INT64)
    ] = _LOGINS.connections_max_reauth_ms
    oauth_jwks: Annotated[
        str, _says("File or https:// URL of the keys (JWKS) that sign OAUTHBEARER tokens; empty: no tokens.")
    ] = _LOGINS.oauth_jwks
    oauth_issuer: Annotated[str, _says("Issuer that tokens must have; empty: any.")] = _LOGINS.oauth_issuer
    oauth_audience: Annotated[str, _says("Audience that tokens must be for; empty: any.")] = _LOGINS.oauth_audience
    oauth_principal_claim: Annotated[str, _says("Claim of a token with the name of the user.")] = (
        _LOGINS.oauth_principal_claim
    )
    oauth_organisation_claim: Annotated[
        str, _says("Claim with the organisation; empty: tokens are for users of `default`.")
    ] = _LOGINS.oauth_organisation_claim
    oauth_scope: Annotated[str, _says("Scopes that tokens must have, separated by spaces; empty: none.")] = (
        _LOGINS.oauth_scope
    )
    oauth_clock_skew_ms: Annotated[
        int, _says("How far the clocks of whoever signs tokens may be off.", 0, 3_600_000)
    ] = _LOGINS.oauth_clock_skew_ms
    admin_user: Annotated[
        str,
        _says(
            "User that is created as a super user at the first start. The password comes from the variable "
            "HEADRACE_ADMIN_PASSWORD or from `admin_password_file`."
        ),
    ] = ""
    admin_password_file: Annotated[str, _says("File with that user's password.")] = ""

    data_dir: Annotated[Path, _says("Directory for the embedded server's files.")] = Path("data")
    redis: Annotated[str, _says("redis://, rediss:// or unix:// URL of your own server; empty: the embedded one.")] = ""
    key_prefix: Annotated[str, _says("Prefix of every key in the store.")] = _STORE.prefix
    durability: Annotated[
        Durability,
        _says(
            "Durability of the embedded server. always: acknowledged records are on disk; everysec: a crash of the "
            "server can lose the last second; memory: nothing is written to disk."
        ),
    ] = DEFAULT_DURABILITY
    maxmemory_bytes: Annotated[
        int, _says("Memory of the embedded server; 0: half of the machine's or container's.", 0, MAX_INT64)
    ] = 0
    allow_eviction: Annotated[
        bool, _says("Accept your own server even if its policy evicts keys, and with them records.")
    ] = _STORE.allow_eviction
    memory_high_mark_percent: Annotated[
        int, _says("Memory use of the server above which produces get a retriable error.", 1, 100)
    ] = _STORE.memory_high_mark_percent
    store_timeout_ms: Annotated[int, _says("Timeout of one command to the server.", 10, MAX_INT32)] = _STORE.timeout_ms
    store_replicas: Annotated[
        int,
        _says(
            "Replicas that each Redis server is meant to have: min.insync.replicas counts up to this plus 1. "
            "-1: the most that any of them was ever seen with; 0: never wait for replicas.",
            -1,
            MAX_INT32,
        ),
    ] = _STORE.store_replicas
    replica_timeout_ms: Annotated[
        int,
        _says(
            "How long replicas may take to have an append before acks=all gets NOT_ENOUGH_REPLICAS_AFTER_APPEND.",
            1,
            MAX_INT32,
        ),
    ] = _STORE.replica_timeout_ms
    store_wait_ms: Annotated[
        int,
        _says("How long a request waits for an unavailable server before it gets a retriable error.", 0, MAX_INT32),
    ] = _BROKER.store_wait_ms
    node_lease_ms: Annotated[
        int, _says("A node that has not renewed its lease for this long counts as dead.", 1_000, MAX_INT32)
    ] = _STORE.node_lease_ms

    frame_limit_bytes: Annotated[
        int, _says("Largest request; above it, the connection is closed.", 1 << 10, 256 << 20)
    ] = _BROKER.frame_limit_bytes
    request_budget_bytes: Annotated[
        int, _says("Memory for all requests in flight; above it, reading pauses.", 1 << 10, MAX_INT64)
    ] = _BROKER.request_budget_bytes
    request_elements_max: Annotated[int, _says("Maximum array elements in one request.", 1_000, MAX_INT32)] = (
        _BROKER.request_elements_max
    )
    connections_max: Annotated[int, _says("Maximum number of connections.", 1, 1_000_000)] = _BROKER.connections_max
    connections_idle_ms: Annotated[
        int, _says("A connection that is idle for this long is closed.", 1_000, MAX_INT64)
    ] = _BROKER.connections_idle_ms
    pipeline_max: Annotated[
        int, _says("Maximum requests in flight per connection; above it, reading pauses.", 1, 100_000)
    ] = _BROKER.pipeline_max
    straight_path: Annotated[
        bool, _says("Answer what is in memory without a task; off only to compare, or to find a fault.")
    ] = _BROKER.straight_path
    write_buffer_bytes: Annotated[
        int, _says("Unsent responses per connection; above it, its requests wait.", 1 << 10, 1 << 30)
    ] = _BROKER.write_buffer_bytes
    shutdown_grace_ms: Annotated[
        int, _says("How long requests in flight may take to finish after SIGTERM.", 0, MAX_INT32)
    ] = _BROKER.shutdown_grace_ms

    auto_create_topics: Annotated[bool, _says("Create a topic when a client asks for one that does not exist.")] = (
        _BROKER.auto_create_topics
    )
    default_partitions: Annotated[int, _says("Number of partitions of a topic created without one.", 1, 100_000)] = (
        _BROKER.default_partitions
    )
    delete_topics_enabled: Annotated[bool, _says("Allow clients to delete topics.")] = _BROKER.delete_topics_enabled
    topics_max: Annotated[int, _says("Maximum number of topics.", 1, MAX_INT32)] = _BROKER.topics_max
    topic_partitions_max: Annotated[int, _says("Maximum partitions per topic.", 1, 100_000)] = (
        _BROKER.topic_partitions_max
    )
    partitions_max: Annotated[int, _says("Maximum partitions of all topics together.", 1, MAX_INT32)] = (
        _BROKER.partitions_max
    )

    message_max_bytes: Annotated[
        int, _says("Largest record batch; a topic's max.message.bytes overrides it.", 0, MAX_INT32)
    ] = _BROKER.message_max_bytes
    log_retention_ms: Annotated[
        int, _says("Age at which records are deleted; a topic's retention.ms overrides it; -1: never.", -1, MAX_INT64)
    ] = _BROKER.log_retention_ms
    log_retention_bytes: Annotated[
        int,
        _says(
            "Partition size above which old records are deleted; retention.bytes overrides it; -1: no limit.",
            -1,
            MAX_INT64,
        ),
    ] = _BROKER.log_retention_bytes
    min_insync_replicas: Annotated[
        int,
        _says(
            "Copies of a record in Redis, the primary's included, before acks=all is answered and consumers see it; a "
            "topic's min.insync.replicas overrides it. Groups, transactions and topics follow it, too.",
            1,
            MAX_INT32,
        ),
    ] = _BROKER.min_insync_replicas
    retention_check_interval_ms: Annotated[int, _says("How often retention is checked.", 1, MAX_INT64)] = (
        _BROKER.retention_check_interval_ms
    )
    compaction_check_interval_ms: Annotated[
        int, _says("How often it is checked which compacted topics have enough new records.", 1, MAX_INT64)
    ] = _BROKER.compaction_check_interval_ms
    append_entry_bytes: Annotated[
        int, _says("Queued batches of a partition are joined into one stream entry of up to this size.", 1, 256 << 20)
    ] = _STORE.append_entry_bytes
    index_interval_bytes: Annotated[int, _says("Bytes of log per index entry.", 1 << 10, MAX_INT32)] = (
        _STORE.index_interval_bytes
    )
    snapshot_interval_bytes: Annotated[
        int, _says("Bytes of log between two snapshots of the idempotent producers.", 1 << 20, MAX_INT64)
    ] = _STORE.snapshot_interval_bytes
    tail_cache_bytes: Annotated[
        int, _says("Memory for the newest batches, which serves consumers at the tail.", 0, MAX_INT64)
    ] = _STORE.tail_cache_bytes

    fetch_max_bytes: Annotated[
        int, _says("Largest response to one fetch, whatever the client asks for.", 1 << 10, MAX_INT32)
    ] = _BROKER.fetch_max_bytes
    fetch_sessions_max: Annotated[int, _says("Maximum number of fetch sessions kept.", 0, 1_000_000)] = (
        _BROKER.fetch_sessions_max
    )

    authorizer: Annotated[
        AuthorizerMode,
        _says(
            "Whether ACLs are asked for. auto: as soon as a listener authenticates its clients; on: always; off: "
            "everybody may do everything."
        ),
    ] = _BROKER.authorizer
    super_users: Annotated[
        str,
        _says(
            "Principals that may do everything, such as `User:alice;acme/User:bob`; without an organisation: default."
        ),
    ] = _BROKER.super_users
    allow_everyone_if_no_acl_found: Annotated[bool, _says("Let everybody use a resource that no ACL is about.")] = (
        _BROKER.allow_everyone_if_no_acl_found
    )

    group_initial_rebalance_delay_ms: Annotated[
        int, _says("How long a new group waits for more members before its first rebalance.", 0, MAX_INT32)
    ] = _GROUPS.initial_rebalance_delay_ms
    group_min_session_timeout_ms: Annotated[
        int, _says("Shortest session timeout a member may ask for.", 1, MAX_INT32)
    ] = _GROUPS.min_session_timeout_ms
    group_max_session_timeout_ms: Annotated[
        int, _says("Longest session timeout a member may ask for.", 1, MAX_INT32)
    ] = _GROUPS.max_session_timeout_ms
    group_max_size: Annotated[int, _says("Maximum members per group.", 1, MAX_INT32)] = _GROUPS.max_size
    offsets_retention_ms: Annotated[
        int, _says("Age at which committed offsets of a group without members are deleted.", 1, MAX_INT64)
    ] = _GROUPS.offsets_retention_ms
    offsets_retention_check_ms: Annotated[int, _says("How often offsets_retention_ms is checked.", 1, MAX_INT64)] = (
        _BROKER.offsets_retention_check_ms
    )
    offset_metadata_max_bytes: Annotated[int, _says("Longest metadata string of a commit.", 0, MAX_INT32)] = (
        _BROKER.offset_metadata_max_bytes
    )
    transaction_max_timeout_ms: Annotated[
        int, _says("Longest transaction.timeout.ms that a producer may ask for.", 1, MAX_INT32)
    ] = _BROKER.transaction_max_timeout_ms

    log_level: Annotated[LogLevel, _says("Minimum level to log.")] = "info"
    log_format: Annotated[
        LogFormat, _says("text for people, json for machines; auto: text on a terminal, json otherwise.")
    ] = "auto"
    lake: Annotated[
        str,
        _says(
            "Folder or s3://, abfss:// or gs:// URL of the tables with old records, for topics with "
            "remote.storage.enable; empty: tiered topics are disabled."
        ),
    ] = ""
    lake_storage: Annotated[
        str,
        _says("KEY=VALUE,... for the lake's object store, such as aws_endpoint_url; default: from the environment."),
    ] = ""
    cold_timeout_ms: Annotated[
        int, _says("How long a read waits for the lake before it gets a retriable error.", 10, MAX_INT32)
    ] = _STORE.cold_timeout_ms


# A section begins with the setting that is named here.
_SECTIONS = {
    "host": "Listening",
    "listen": "Listeners, TLS and logins",
    "data_dir": "Store",
    "frame_limit_bytes": "Connection and request limits",
    "auto_create_topics": "Topics",
    "message_max_bytes": "The log",
    "fetch_max_bytes": "Fetch",
    "group_initial_rebalance_delay_ms": "Groups and their commits",
    "log_level": "Logging and the lake",
}


def _kind_of(name: str, value_type: Any) -> ValueKind:
    if value_type is int:
        return (
            ValueKind.SIZE if name.endswith("_bytes") else ValueKind.TIME if name.endswith("_ms") else ValueKind.INTEGER
        )
    if get_origin(value_type) is tuple:
        return ValueKind.LISTENERS
    return {bool: ValueKind.SWITCH, str: ValueKind.TEXT, Path: ValueKind.PATH}.get(value_type, ValueKind.CHOICE)


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
