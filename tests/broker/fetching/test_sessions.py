"""Fetch sessions of several organisations: each has its own limit."""

from __future__ import annotations

from headrace.broker.fetching.sessions import FetchSessions
from headrace.security.caller import Caller, Principal
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

LIMIT = 3


def open_one(sessions: FetchSessions, organisation: str) -> int:
    request = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="orders", partitions=[FetchPartition(0)])])
    session = sessions.open(Caller(Principal("User", "ann"), organisation, "default"), request)
    assert session is not None
    return session.id


def test_an_organisation_with_many_sessions_takes_none_from_another() -> None:
    sessions = FetchSessions(LIMIT)
    ours = open_one(sessions, "default")
    for _ in range(10 * LIMIT):
        open_one(sessions, "acme")
    assert len(sessions) == 1 + LIMIT
    again = sessions.open(
        Caller(Principal("User", "ann"), "default", "default"), FetchRequest(session_id=ours, session_epoch=1)
    )
    assert again is not None
    assert again.id == ours
