"""The topics that a group of consumers is subscribed to, read from the members' own metadata.

The metadata is the clients' matter; only for type "consumer" do its first fields have a known form: int16
version, then an array of topic names, the same in all versions. Bytes that do not fit give None: unknown.
"""

from headrace.groups.classic.state import CONSUMER_PROTOCOL_TYPE, Group

_INT16 = 2
_INT32 = 4


def parse_topics(metadata: bytes) -> frozenset[str] | None:
    at = _INT16
    if len(metadata) < at + _INT32 or int.from_bytes(metadata[:at], "big", signed=True) < 0:
        return None
    count = int.from_bytes(metadata[at : at + _INT32], "big", signed=True)
    at += _INT32
    # Each name takes at least its length field: a count that cannot be true ends here.
    if not 0 <= count <= (len(metadata) - at) // _INT16:
        return None
    topics: set[str] = set()
    for _ in range(count):
        size = int.from_bytes(metadata[at : at + _INT16], "big", signed=True)
        at += _INT16
        if size < 0 or at + size > len(metadata):
            return None
        try:
            topics.add(metadata[at : at + size].decode())
        except UnicodeDecodeError:
            return None
        at += size
    return frozenset(topics)


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """None: not known, because of another type, no selected protocol yet, or metadata of some other form."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name)
        subscription = parse_topics(metadata) if metadata is not None else None
        if subscription is None:
            return None
        topics |= subscription
    return frozenset(topics)


def is_subscribed(group: Group, topic: str, known_topics: frozenset[str] | None) -> bool:
    """Whether the group is subscribed to a topic; yes if unknown, because offsets in use must not be lost."""
    if known_topics is None:
        return bool(group.members) and group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return topic in known_topics
