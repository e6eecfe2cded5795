"""Every setting of the broker: its default, its bounds and a one-line description.

Flags, environment variables, the TOML file, `headrace config` and docs/settings.md are all generated from this table,
so they cannot disagree. A default that belongs to a room stands in that room's options and nowhere else, so a room
used by itself behaves as under the command. Names end in their unit.
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
from headrace.store.usable_memory import AUTOMATIC

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
    rack: Annotated[str, _says("Rack or zone of this node, reported to clients; replicas are spread over racks.")] = ""
    http_host: Annotated[str, _says("Address of the HTTP endpoints.")] = _BROKER.host
    http_port: Annotated[
        int, _says("Port of the HTTP endpoints `/health/live`, `/health/ready` and `/metrics`; 0: none.", 0, 65535)
    ] = 0
    console: Annotated[
        bool, _says("Serve the console for all nodes on `http_port`, if the extra headrace[console] is installed.")
    ] = True
    console_read_only: Annotated[bool, _says("Make the console read-only.")] = False
    metrics_token_file: Annotated[
        str,
        _says(
            "File with the bearer token for `/metrics`, readable by nobody else; without one `/metrics` is served on "
            "loopback only."
        ),
    ] = ""
    metrics_names_max: Annotated[
        int, _says("Maximum topics and groups with their own metrics; the rest are counted together.", 0, 1_000_000)
    ] = _BROKER.metrics_names_max
    metrics_partitions: Annotated[bool, _says("Also export metrics per partition.")] = _BROKER.metrics_partitions
    tracing_endpoint: Annotated[
        str,
        _says(
            "OTLP/HTTP address to send spans to, such as http://127.0.0.1:4318/v1/traces; needs the extra "
            "headrace[tracing]; empty: no tracing."
        ),
    ] = ""
    tracing_one_in: Annotated[int, _says("Trace one in this many produce and fetch requests.", 1, 1_000_000_000)] = 100
    metrics_interval_ms: Annotated[
        int, _says("How often lag and other metrics that need the store are updated.", 100, 3_600_000)
    ] = _BROKER.metrics_interval_ms

    listen: Annotated[
        tuple[str, ...],
        _says(
            "Listener NAME=PROTOCOL://HOST:PORT, with protocol PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, and "
            "options after commas: advertised=HOST:PORT, client-auth=none|requested|required, proxy-from=NETWORK,..., "
            "mechanisms=NAME,.... May be repeated. It replaces the default listener, unless `host` or `port` is also "
            "set: together they make a PLAINTEXT listener named `default`."
        ),
    ] = ()
    allow_plaintext: Annotated[
        bool, _says("Allow PLAINTEXT and SASL_PLAINTEXT listeners that other machines can reach.")
    ] = False
    tls_cert: Annotated[
        str, _says("PEM file with the broker's certificate and chain; reloaded when it changes, or at SIGHUP.")
    ] = _LOGINS.tls_cert
    tls_key: Annotated[str, _says("PEM file with the private key; empty: in the same file as the certificate.")] = (
        _LOGINS.tls_key
    )
    tls_ca: Annotated[str, _says("PEM file with the authorities (CAs) trusted to sign client certificates.")] = (
        _LOGINS.tls_ca
    )
    tls_principal_rules: Annotated[
        str, _says("Mapping of client certificate names to users, as in Kafka's ssl.principal.mapping.rules.")
    ] = _LOGINS.tls_principal_rules
    tls_handshakes_per_second: Annotated[
        int, _says("Maximum new TLS handshakes per second; more wait.", 1, 100_000)
    ] = _LOGINS.tls_handshakes_per_second
    login_timeout_ms: Annotated[
        int,
        _says("Time allowed from connecting to the end of the login; then the connection is closed.", 100, MAX_INT32),
    ] = _LOGINS.login_timeout_ms
    unauthenticated_max: Annotated[
        int, _says("Maximum connections that have not logged in; above it, the oldest are closed.", 1, 1_000_000)
    ] = _LOGINS.unauthenticated_max
    unauthenticated_per_address_max: Annotated[int, _says("The same limit per client address.", 1, 1_000_000)] = (
        _LOGINS.unauthenticated_per_address_max
    )
    connections_max_reauth_ms: Annotated[
        int, _says("How long a SASL login is valid before the client must log in again; 0: forever.", 0, MAX_INT64)
    ] = _LOGINS.connections_max_reauth_ms
    oauth_jwks: Annotated[
        str, _says("File or https:// URL of the keys (JWKS) that OAUTHBEARER tokens are signed with; empty: no tokens.")
    ] = _LOGINS.oauth_jwks
    oauth_issuer: Annotated[str, _says("Required token issuer; empty: any.")] = _LOGINS.oauth_issuer
    oauth_audience: Annotated[str, _says("Required token audience; empty: any.")] = _LOGINS.oauth_audience
    oauth_principal_claim: Annotated[str, _says("Token claim with the user name.")] = _LOGINS.oauth_principal_claim
    oauth_organisation_claim: Annotated[
        str, _says("Token claim with the organisation; empty: all token users belong to `default`.")
    ] = _LOGINS.oauth_organisation_claim
    oauth_scope: Annotated[str, _says("Required token scopes, separated by spaces; empty: none.")] = _LOGINS.oauth_scope
    oauth_clock_skew_ms: Annotated[
        int, _says("Clock difference allowed between this node and the token issuer.", 0, 3_600_000)
    ] = _LOGINS.oauth_clock_skew_ms
    admin_user: Annotated[
        str,
        _says(
            "Super user to create at the first start. Its password comes from the variable HEADRACE_ADMIN_PASSWORD "
            "or from `admin_password_file`."
        ),
    ] = ""
    admin_password_file: Annotated[str, _says("File with the password of `admin_user`.")] = ""

    data_dir: Annotated[Path, _says("Directory for the embedded server's files.")] = Path("data")
    redis: Annotated[
        str, _says("redis://, redis+sentinel://, redis+cluster:// or unix:// URL; empty: an embedded server.")
    ] = ""
    key_prefix: Annotated[str, _says("Prefix of every key in the store.")] = _STORE.prefix
    durability: Annotated[
        Durability,
        _says(
            "Durability of the embedded server. always: acknowledged records are on disk; everysec: a crash of the "
            "server can lose the last second; memory: nothing is written to disk."
        ),
    ] = DEFAULT_DURABILITY
    maxmemory_bytes: Annotated[
        int, _says("Memory limit of the embedded server; 0: half of the machine's or container's memory.", 0, MAX_INT64)
    ] = 0
    allow_eviction: Annotated[
        bool, _says("Accept a server whose maxmemory-policy evicts keys, and with them records.")
    ] = _STORE.allow_eviction
    memory_high_mark_percent: Annotated[
        int,
        _says("Memory use of the server, in percent of its limit, above which produces get a retriable error.", 1, 100),
    ] = _STORE.memory_high_mark_percent
    store_timeout_ms: Annotated[int, _says("Timeout for one command to the server.", 10, MAX_INT32)] = _STORE.timeout_ms
    store_replicas: Annotated[
        int,
        _says(
            "Replicas expected per Redis server: min.insync.replicas counts up to this plus 1. -1: the most that any "
            "of them ever had; 0: never wait for replicas.",
            -1,
            MAX_INT32,
        ),
    ] = _STORE.store_replicas
    replica_timeout_ms: Annotated[
        int, _says("How long to wait for replicas before acks=all gets NOT_ENOUGH_REPLICAS_AFTER_APPEND.", 1, MAX_INT32)
    ] = _STORE.replica_timeout_ms
    store_wait_ms: Annotated[
        int, _says("How long a request waits for an unavailable server before it gets a retriable error.", 0, MAX_INT32)
    ] = _BROKER.store_wait_ms
    node_lease_ms: Annotated[
        int, _says("Time without a lease renewal after which a node is considered dead.", 1_000, MAX_INT32)
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
    connections_idle_ms: Annotated[int, _says("Idle time after which a connection is closed.", 1_000, MAX_INT64)] = (
        _BROKER.connections_idle_ms
    )
    pipeline_max: Annotated[
        int, _says("Maximum requests in flight per connection; above it, reading pauses.", 1, 100_000)
    ] = _BROKER.pipeline_max
    straight_path: Annotated[
        bool,
        _says("Serve requests from memory without a task where possible; turn off only to measure, or to find a bug."),
    ] = _BROKER.straight_path
    write_buffer_bytes: Annotated[
        int, _says("Unsent response bytes per connection; above it, its requests wait.", 1 << 10, 1 << 30)
    ] = _BROKER.write_buffer_bytes
    shutdown_grace_ms: Annotated[int, _says("How long to wait for requests in flight after SIGTERM.", 0, MAX_INT32)] = (
        _BROKER.shutdown_grace_ms
    )

    auto_create_topics: Annotated[bool, _says("Create missing topics on first use by a client.")] = (
        _BROKER.auto_create_topics
    )
    default_partitions: Annotated[int, _says("Partitions of a new topic, if the client does not say.", 1, 100_000)] = (
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
            "Copies of a record in Redis, including the primary's, before acks=all is answered and consumers see it; "
            "a topic's min.insync.replicas overrides it. It also applies to groups, transactions and topics.",
            1,
            MAX_INT32,
        ),
    ] = _BROKER.min_insync_replicas
    retention_check_interval_ms: Annotated[int, _says("How often retention is checked.", 1, MAX_INT64)] = (
        _BROKER.retention_check_interval_ms
    )
    compaction_check_interval_ms: Annotated[
        int, _says("How often to check which compacted topics need compaction.", 1, MAX_INT64)
    ] = _BROKER.compaction_check_interval_ms
    append_entry_bytes: Annotated[
        int, _says("Queued batches of a partition are joined into stream entries of up to this size.", 1, 256 << 20)
    ] = _STORE.append_entry_bytes
    index_interval_bytes: Annotated[int, _says("Bytes of log per index entry.", 1 << 10, MAX_INT32)] = (
        _STORE.index_interval_bytes
    )
    snapshot_interval_bytes: Annotated[
        int, _says("Bytes of log between two snapshots of idempotent producer state.", 1 << 20, MAX_INT64)
    ] = _STORE.snapshot_interval_bytes
    tail_cache_bytes: Annotated[
        int,
        _says(
            "Memory for the tail cache: the newest batches, served without asking Redis. -1: a sixteenth of the "
            "machine's or container's memory, at most 1 GiB, shared by its `nodes`; 0: none.",
            AUTOMATIC,
            MAX_INT64,
        ),
    ] = _STORE.tail_cache_bytes
    read_ahead_bytes: Annotated[int, _says("Memory for read-ahead from Redis.", 0, MAX_INT64)] = _STORE.read_ahead_bytes

    fetch_max_bytes: Annotated[
        int, _says("Largest response to one fetch, whatever the client asks for.", 1 << 10, MAX_INT32)
    ] = _BROKER.fetch_max_bytes
    fetch_sessions_max: Annotated[int, _says("Maximum number of fetch sessions kept.", 0, 1_000_000)] = (
        _BROKER.fetch_sessions_max
    )

    authorizer: Annotated[
        AuthorizerMode,
        _says(
            "Whether ACLs are enforced. auto: if any listener authenticates clients; on: always; off: everyone may "
            "do everything."
        ),
    ] = _BROKER.authorizer
    super_users: Annotated[
        str,
        _says(
            "Principals allowed to do everything, such as `User:alice;acme/User:bob`; without an organisation: default."
        ),
    ] = _BROKER.super_users
    allow_everyone_if_no_acl_found: Annotated[bool, _says("Allow everyone to use resources without any ACL.")] = (
        _BROKER.allow_everyone_if_no_acl_found
    )

    group_initial_rebalance_delay_ms: Annotated[
        int, _says("How long a new group waits for more members before its first rebalance.", 0, MAX_INT32)
    ] = _GROUPS.initial_rebalance_delay_ms
    group_min_session_timeout_ms: Annotated[
        int, _says("Shortest session timeout a member may request.", 1, MAX_INT32)
    ] = _GROUPS.min_session_timeout_ms
    group_max_session_timeout_ms: Annotated[
        int, _says("Longest session timeout a member may request.", 1, MAX_INT32)
    ] = _GROUPS.max_session_timeout_ms
    group_max_size: Annotated[int, _says("Maximum members per group.", 1, MAX_INT32)] = _GROUPS.max_size
    offsets_retention_ms: Annotated[
        int, _says("Age at which committed offsets of an empty group are deleted.", 1, MAX_INT64)
    ] = _GROUPS.offsets_retention_ms
    offsets_retention_check_ms: Annotated[int, _says("How often offsets_retention_ms is checked.", 1, MAX_INT64)] = (
        _BROKER.offsets_retention_check_ms
    )
    offset_metadata_max_bytes: Annotated[int, _says("Longest metadata string in a commit.", 0, MAX_INT32)] = (
        _BROKER.offset_metadata_max_bytes
    )
    transaction_max_timeout_ms: Annotated[
        int, _says("Longest transaction.timeout.ms a producer may request.", 1, MAX_INT32)
    ] = _BROKER.transaction_max_timeout_ms

    log_level: Annotated[LogLevel, _says("Minimum level to log.")] = "info"
    log_format: Annotated[
        LogFormat, _says("text for people, json for machines; auto: text on a terminal, json otherwise.")
    ] = "auto"
    lake: Annotated[
        str,
        _says(
            "Folder or s3://, abfss:// or gs:// URL of the lake, for topics with remote.storage.enable; empty: tiered "
            "topics are disabled."
        ),
    ] = ""
    lake_storage: Annotated[
        str,
        _says("KEY=VALUE,... for the lake's object store, such as aws_endpoint_url; default: from the environment."),
    ] = ""
    cold_timeout_ms: Annotated[
        int, _says("How long a read waits for the lake before it gets a retriable error.", 10, MAX_INT32)
    ] = _STORE.cold_timeout_ms
    cold_bytes_per_second: Annotated[
        int, _says("Bytes per second of cold records while clients use hot ones, too; 0: no limit.", 0, MAX_INT64)
    ] = _STORE.cold_bytes_per_second
    cold_cpu_percent: Annotated[
        int,
        _says("Percent of a core for reading the lake while other processes wait for CPU; 0: no limit.", 0, 100_000),
    ] = 50


# Each section begins with the setting named here.
_SECTIONS = {
    "host": "Address and identity",
    "http_host": "Console, metrics and tracing",
    "listen": "Listeners, TLS and logins",
    "data_dir": "Store",
    "frame_limit_bytes": "Connection and request limits",
    "auto_create_topics": "Topics",
    "message_max_bytes": "The log",
    "fetch_max_bytes": "Fetch",
    "authorizer": "Access control",
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
