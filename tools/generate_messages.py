"""Writes src/headrace/wire/messages/ from the schema classes that the `kio` package ships.

kio has one frozen dataclass per structure and version. Here the versions of a structure are folded into one class
whose annotations say which version has which field, as `wire/schema.py` reads them. What newer Kafka releases offer
and kio does not have yet stands in ADDED. Run it after a new kio: `make messages`.
"""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

from kio.schema.index import LoadableEntityType, schema_name_map
from kio.static.constants import EntityType

MESSAGES = Path(__file__).parent.parent / "src/headrace/wire/messages"

APIS = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 15: "DescribeGroups",
    16: "ListGroups", 17: "SaslHandshake", 18: "ApiVersions", 19: "CreateTopics", 20: "DeleteTopics",
    21: "DeleteRecords", 22: "InitProducerId", 23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn", 26: "EndTxn", 27: "WriteTxnMarkers", 28: "TxnOffsetCommit",
    29: "DescribeAcls", 30: "CreateAcls", 31: "DeleteAcls",
    32: "DescribeConfigs", 33: "AlterConfigs", 34: "AlterReplicaLogDirs", 35: "DescribeLogDirs",
    36: "SaslAuthenticate", 37: "CreatePartitions", 38: "CreateDelegationToken", 39: "RenewDelegationToken",
    40: "ExpireDelegationToken", 41: "DescribeDelegationToken", 42: "DeleteGroups", 43: "ElectLeaders",
    44: "IncrementalAlterConfigs", 45: "AlterPartitionReassignments", 46: "ListPartitionReassignments",
    47: "OffsetDelete", 48: "DescribeClientQuotas", 49: "AlterClientQuotas", 50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials", 55: "DescribeQuorum", 60: "DescribeCluster", 61: "DescribeProducers",
    64: "UnregisterBroker", 65: "DescribeTransactions", 66: "ListTransactions", 68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe", 74: "ListConfigResources", 75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat", 77: "ShareGroupDescribe",
    78: "ShareFetch", 79: "ShareAcknowledge", 80: "AddRaftVoter", 81: "RemoveRaftVoter", 88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe", 90: "DescribeShareGroupOffsets", 91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}  # fmt: skip
DATA = ("ConsumerProtocolAssignment", "ConsumerProtocolSubscription")

UNSTABLE = {"InitProducerId": 6}
"""Versions that kio has and that Kafka does not offer unless told to."""


class Added(typing.NamedTuple):
    """A field that kio does not have; an empty name only raises the version."""

    version: int
    field: str = ""
    hint: str = ""
    spec: str = ""
    default: str = ""
    before: str = ""
    """The field that it stands before; the last without one."""

    def line(self) -> str:
        return f'    {self.field}: Annotated[{self.hint}, "{self.spec}"] = {self.default}'


ADDED: dict[str, list[Added]] = {
    "ApiVersionsRequest": [
        Added(5, "cluster_id", "str | None", "string 5+ null", "None"),
        Added(5, "node_id", "int", "int32 5+", "-1"),
    ],
    "ApiVersionsResponse": [Added(5)],
    "DeleteGroupsRequest": [Added(3)],
    "DeletableGroupResult": [Added(3, "error_message", "str | None", "string 3+ null", "None")],
    "TxnOffsetCommitRequestTopic": [Added(6, "topic_id", "bytes", "uuid 6+", "ZERO_UUID", "partitions")],
    "TxnOffsetCommitResponseTopic": [Added(6, "topic_id", "bytes", "uuid 6+", "ZERO_UUID", "partitions")],
    "StreamsGroupHeartbeatResponse": [
        Added(1, "acceptable_recovery_lag_long", "int", "int64 1+", "-1", "status"),
        Added(1, "topology_description_required", "bool", "bool 1+", "False", "endpoint_information_epoch"),
    ],
    "StreamsGroupDescribeRequest": [Added(1, "include_topology_description", "bool", "bool 1+", "False")],
    "StreamsGroupDescribe.DescribedGroup": [
        # A structure that is never sent: -1 is how its absence travels.
        Added(1, "no_topology_description", "int", "int8 1+", "-1"),
        Added(1, "topology_description_status", "int", "int8 1+", "0"),
        Added(1, "assignor_name", "str | None", "string 1+ null", "None"),
    ],
}
"""Class, or API and class where several have one of that name -> what newer versions have."""

ENDED = {
    ("TxnOffsetCommitRequestTopic", "name"),
    ("TxnOffsetCommitResponseTopic", "name"),
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag"),
}
"""Fields of kio's newest version that those in ADDED do not have any more."""


def added(api: str, cls: str) -> list[Added]:
    return ADDED.get(f"{api}.{cls}", ADDED.get(cls, []))


KINDS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
PYTHON = {
    "bool": "bool", "int8": "int", "int16": "int", "uint16": "int", "int32": "int", "int64": "int",
    "float64": "float", "string": "str", "bytes": "bytes", "records": "Records", "uuid": "bytes",
}  # fmt: skip
ZERO = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "uuid": "ZERO_UUID",
    "records": "None",
}


@dataclasses.dataclass
class Seen:
    """One field, as met in the versions read so far."""

    name: str
    kind: str
    is_array: bool
    nested: str | None
    default: str
    versions: set[int] = dataclasses.field(default_factory=set)
    nullable: set[int] = dataclasses.field(default_factory=set)
    tag: int | None = None


Structures = dict[str, dict[str, Seen]]


def snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


def field_name(field: dataclasses.Field[Any]) -> str:
    """kio drops the unit of times; Kafka's own names keep it, and so do ours."""
    timed = field.metadata.get("kafka_type") in ("timedelta_i32", "timedelta_i64") or field.name == "log_append_time"
    return field.name + "_ms" if timed and not field.name.endswith("_ms") else field.name


def read_structure(cls: type, version: int, found: Structures) -> None:
    """Adds what `cls`, and every structure below it, has in this version."""
    known = found.setdefault(cls.__name__, {})
    hints = typing.get_type_hints(cls)
    order: list[str] = []
    for field in dataclasses.fields(cls):
        hint, nullable = without_none(hints[field.name])
        is_array = typing.get_origin(hint) is tuple
        if is_array:
            hint = typing.get_args(hint)[0]
        kind = KINDS.get(field.metadata.get("kafka_type", ""), field.metadata.get("kafka_type"))
        nested = None
        if kind is None:
            nested = hint.__name__
            read_structure(hint, version, found)
        if kind in PYTHON and kind not in ("string", "bytes", "records") and not is_array:
            nullable = False  # kio shows an absent id or time as None; on the wire it is a number like any other
        name = field_name(field)
        order.append(name)
        seen = known.get(name)
        if seen is None:
            default = default_text(field, kind, is_array)
            seen = known[name] = Seen(name, kind or nested or "", is_array, nested, default)
        seen.versions.add(version)
        if nullable:
            seen.nullable.add(version)
        seen.tag = field.metadata.get("tag", seen.tag)
    found[cls.__name__] = in_order(known, order)


def without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        args = [a for a in typing.get_args(hint) if a is not type(None)]
        return args[0], len(args) < len(typing.get_args(hint))
    return hint, False


def in_order(known: dict[str, Seen], order: list[str]) -> dict[str, Seen]:
    """Versions are read from the newest down; an older field goes before the field that followed it then."""
    names = list(known)
    for i, name in enumerate(order):
        following = [names.index(n) for n in order[i + 1 :] if n in names]
        at = names.index(name)
        if following and at > min(following):
            names.remove(name)
            names.insert(min(following), name)
    return {n: known[n] for n in names}


def default_text(field: dataclasses.Field[Any], kind: str | None, is_array: bool) -> str:
    value = None if field.default is dataclasses.MISSING else field.default
    if is_array:
        return "None" if field.default is None else "[]"
    if kind is None:
        return "None" if value is None else f"{type(value).__name__}()"
    if isinstance(value, datetime.timedelta):
        return str(int(value.total_seconds() * 1000))
    if isinstance(value, bool) or (value is None and kind == "bool"):
        return str(bool(value))
    if isinstance(value, int | float | str | bytes):
        return repr(int(value)) if isinstance(value, int) else repr(value).replace("'", '"')
    if field.default is None and kind in ("string", "bytes", "records"):
        return "None"
    if isinstance(value, datetime.datetime) or (field.default is None and kind in ("int64", "int32")):
        return "-1"
    return ZERO.get(kind, "0")


def specification(seen: Seen, versions: tuple[int, int]) -> str:
    words = [("[]" if seen.is_array else "") + seen.kind]
    if (present := interval(seen.versions, versions)) is not None:
        words.append(present)
    if seen.tag is not None:
        words.append(f"tag={seen.tag}")
    if seen.nullable:
        nullable = interval(seen.nullable, (min(seen.versions), max(seen.versions)))
        words.append("null" if nullable is None else f"null={nullable}")
    return " ".join(words)


def interval(some: set[int], all_versions: tuple[int, int]) -> str | None:
    first, last = min(some), max(some)
    assert some == set(range(first, last + 1)), some
    if (first, last) == all_versions:
        return None
    return f"{first}+" if last == all_versions[1] else f"{first}-{last}" if first < last else str(first)


def python_type(seen: Seen) -> str:
    inner = PYTHON.get(seen.kind, seen.kind)
    text = f"list[{inner}]" if seen.is_array else inner
    return f"{text} | None" if seen.nullable or seen.default == "None" else text


def write_module(api_key: int, name: str, entities: tuple[LoadableEntityType, ...]) -> str:
    modules = schema_name_map[snake(name)]
    limit = UNSTABLE.get(name)
    versions = sorted(v for v in modules if limit is None or v < limit)
    flexible = 32767
    parts: list[tuple[LoadableEntityType, Structures]] = []
    for entity in entities:
        found: Structures = {}
        for version in reversed(versions):
            cls = load(modules[version][entity])
            read_structure(cls, version, found)
            if cls.__flexible__:
                flexible = min(flexible, version)
        parts.append((entity, found))
    last = max([versions[-1], *(a.version for e, f in parts for s in f for a in added(name, s))])
    body = [write_structures(api_key, name, e, f, (versions[0], last), flexible, parts) for e, f in parts]
    text = "\n\n".join(body)
    head = f'"""{name}: versions {versions[0]} to {last}. Generated by tools/generate_messages.py; do not edit."""'
    names = [n for n in ("ZERO_UUID", "Api", "Message", "Payload", "Records") if uses(text, n)]
    factories = "from msgspec import field\n\n" if "field(default_factory" in text else ""
    return (
        f"{head}\n\nfrom __future__ import annotations\n\nfrom typing import Annotated, ClassVar\n\n{factories}"
        f"from headrace.wire.schema import {', '.join(names)}\n\n\n{text}\n"
    )


def uses(text: str, name: str) -> bool:
    return any(f"{before}{name}{after}" in text for before in "([ " for after in "(), ]|\n")


def load(path: str) -> Any:
    module, _, name = path.partition(":")
    __import__(module)
    return getattr(sys.modules[module], name)


def write_structures(
    api_key: int, name: str, entity: LoadableEntityType, found: Structures, versions: tuple[int, int], flexible: int,
    parts: list[tuple[LoadableEntityType, Structures]],
) -> str:  # fmt: skip
    top = name + {EntityType.request: "Request", EntityType.response: "Response"}.get(entity, "")
    clash = set(parts[0][1]) & set(parts[-1][1]) if len(parts) > 1 else set()
    rename = {n: f"{n}Result" for n in clash} if entity is EntityType.response else {}
    blocks = []
    for cls in sorted(found, key=lambda n: height(n, found)):
        own = write_api(api_key, name, entity, versions, flexible) if cls == top else ""
        lines = [f"class {rename.get(cls, cls)}({'Payload' if own else 'Message'}):", *([own] if own else [])]
        for seen in found[cls].values():
            seen.kind = rename.get(seen.kind, seen.kind)
            if not seen.is_array and seen.nested and seen.default == "None" and not seen.nullable:
                seen.default = f"{seen.kind}()"
            default = seen.default
            if default.endswith("()"):
                default = f"field(default_factory={rename.get(default[:-2], default[:-2])})"
            old = max(max(s.versions) for s in found[cls].values())
            seen = seen if (cls, seen.name) in ENDED else stretched(seen, old, versions[1])
            lines += [new.line() for new in added(name, cls) if new.before == seen.name]
            lines.append(
                f'    {seen.name}: Annotated[{python_type(seen)}, "{specification(seen, versions)}"] = {default}'
            )
        lines += [new.line() for new in added(name, cls) if new.field and not new.before]
        if len(lines) == 1:
            lines.append("    pass")
        blocks.append("\n".join(lines))
    return "\n\n\n".join(blocks)


def stretched(seen: Seen, old_last: int, last: int) -> Seen:
    """A field of kio's newest version is one of the newer versions in ADDED too."""
    grow = set(range(old_last + 1, last + 1)) if max(seen.versions) == old_last else set()
    nullable = seen.nullable | grow if old_last in seen.nullable else seen.nullable
    return dataclasses.replace(seen, versions=seen.versions | grow, nullable=nullable)


def write_api(api_key: int, name: str, entity: LoadableEntityType, versions: tuple[int, int], flexible: int) -> str:
    response = entity is EntityType.response
    return f'    api: ClassVar[Api] = Api({api_key}, "{name}", {versions}, {flexible}, response={response})\n'


def height(cls: str, found: Structures) -> int:
    """How many levels of structures lie below: leaves are written first."""
    return max((height(s.nested, found) + 1 for s in found[cls].values() if s.nested), default=0)


def modules() -> dict[str, str]:
    """File name -> text of every generated module."""
    written = {
        f"{snake(name)}.py": write_module(key, name, (EntityType.request, EntityType.response))
        for key, name in APIS.items()
    }
    written |= {f"{snake(name)}.py": write_module(-1, name, (EntityType.data,)) for name in DATA}
    written["__init__.py"] = (
        '"""Kafka\'s messages, one module per API. Generated by tools/generate_messages.py from kio\'s schemas."""\n'
    )
    return {file: formatted(text) for file, text in written.items()}


def formatted(text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    command = [str(ruff), "format", "--stdin-filename", str(MESSAGES / "x.py"), "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
    return done.stdout


if __name__ == "__main__":
    for file, text in modules().items():
        (MESSAGES / file).write_text(text)
