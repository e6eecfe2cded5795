"""Fetch sessions (KIP-227): the broker remembers a consumer's partitions, so requests carry only changes.

Each request names the session's id and the next epoch. In an incremental response a partition appears only if it has
records, an error, or a high watermark or log start that the client has not seen. The number is limited per
organisation; at the limit the least recently used session is evicted, and its client starts over. A session belongs to
the principal that opened it; for others it does not exist.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from headrace.security.caller import Caller, Principal
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.fetch import FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
_LAST_EPOCH = (1 << 31) - 1

Key = tuple[str, bytes, int]
"""Topic name, topic id (one of them empty), partition."""
Owner = tuple[str, Principal]
"""Organisation and principal."""


class Wanted(msgspec.Struct):
    """A session's wanted position in one partition, and the state last sent."""

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    told_high_watermark: int = -1
    told_log_start: int = -1

    def tell(self, high_watermark: int, log_start: int) -> None:
        """Notes what the client is told, -1 with an error."""
        self.told_high_watermark, self.told_log_start = high_watermark, log_start


class Session:
    """One consumer's partitions at this node, in the order in which they are served."""

    def __init__(self, session_id: int, owner: Owner) -> None:
        self.id = session_id
        self.owner = owner
        self.epoch = INITIAL_EPOCH
        self.wanted: OrderedDict[Key, Wanted] = OrderedDict()

    def update(self, request: FetchRequest) -> None:
        """Applies a request's added, changed and forgotten partitions."""
        for wanted in wanted_by(request) if request.topics else ():
            key = (wanted.topic, wanted.topic_id, wanted.partition)
            known = self.wanted.get(key)
            if known is not None:
                wanted.told_high_watermark = known.told_high_watermark
                wanted.told_log_start = known.told_log_start
            self.wanted[key] = wanted
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.wanted.pop((topic.topic, topic.topic_id, partition), None)

    def served(self, wanted: Wanted) -> None:
        """A partition that got records goes to the end, so that the others get their turn.

        A later request may have dropped it meanwhile, on another connection.
        """
        key = (wanted.topic, wanted.topic_id, wanted.partition)
        if key in self.wanted:
            self.wanted.move_to_end(key)


class FetchSessions:
    """The sessions of this node."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_organisation: dict[str, OrderedDict[int, Session]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_organisation.values()))

    def open(self, caller: Caller, request: FetchRequest) -> Session | None:
        """The session that a request continues or begins; None for a request without one."""
        sessions = self._by_organisation.get(caller.organisation)
        if sessions is None:
            sessions = self._by_organisation[caller.organisation] = OrderedDict()
        owner = (caller.organisation, caller.principal)
        session = sessions.get(request.session_id)
        if session is not None and session.owner != owner:
            session = None
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                del sessions[session.id]
            return self._create(owner, sessions, request) if request.session_epoch == INITIAL_EPOCH else None
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        sessions.move_to_end(session.id)
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.update(request)
        return session

    def _create(self, owner: Owner, sessions: OrderedDict[int, Session], request: FetchRequest) -> Session | None:
        if self._limit == 0 or not request.topics:
            return None
        session = Session(self._free_id(), owner)
        session.update(request)
        session.epoch = 1
        sessions[session.id] = session
        while len(sessions) > self._limit:
            sessions.popitem(last=False)
        return session

    def _free_id(self) -> int:
        """Ids are unique on a node, so that no organisation learns from them of another one's."""
        while True:
            found = secrets.randbelow(_LAST_EPOCH) + 1
            if not any(found in sessions for sessions in self._by_organisation.values()):
                return found


def wanted_by(request: FetchRequest) -> Iterable[Wanted]:
    """The partitions that a request names."""
    for topic in request.topics:
        for asked in topic.partitions:
            yield Wanted(
                topic.topic,
                topic.topic_id,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
            )
