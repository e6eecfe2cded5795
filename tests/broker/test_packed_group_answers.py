"""The answers that are packed by hand are the ones that the codec makes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.groups.packed_answers import heartbeat_answer, join_answer, sync_answer
from headrace.wire.apis import HEARTBEAT, JOIN_GROUP, SYNC_GROUP
from headrace.wire.frame import response_frame
from headrace.wire.messages.heartbeat import HeartbeatResponse
from headrace.wire.messages.join_group import JoinGroupResponse
from headrace.wire.messages.sync_group import SyncGroupResponse

INT16, INT32 = st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)
IDS = st.integers(0, 2**31 - 1)
TEXT = st.text(max_size=300) | st.just("long" * 1_000)
NULLABLE = st.none() | TEXT
NULLABLE_NAME_SINCE = 7


@given(version=st.integers(0, 4), correlation_id=IDS, error=INT16)
def test_a_heartbeats_is_what_the_codec_makes(version: int, correlation_id: int, error: int) -> None:
    expected = response_frame(HEARTBEAT, HeartbeatResponse(error_code=error), version, correlation_id)
    assert heartbeat_answer(version, correlation_id, error) == b"".join(expected)


@given(st.integers(0, 5), IDS, INT16, NULLABLE, NULLABLE, st.binary(max_size=300))
def test_a_syncs_is_what_the_codec_makes(
    version: int, correlation_id: int, error: int, kind: str | None, name: str | None, assignment: bytes
) -> None:
    response = SyncGroupResponse(0, error, kind, name, assignment)
    expected = response_frame(SYNC_GROUP, response, version, correlation_id)
    assert sync_answer(version, correlation_id, error, kind, name, assignment) == b"".join(expected)


@given(st.integers(0, 9), IDS, INT16, INT32, NULLABLE, NULLABLE, TEXT, st.booleans(), TEXT)
def test_a_joins_is_what_the_codec_makes(
    version: int,
    correlation_id: int,
    error: int,
    generation: int,
    kind: str | None,
    name: str | None,
    leader: str,
    skips: bool,
    member_id: str,
) -> None:
    if version < NULLABLE_NAME_SINCE:
        name = name or ""
    response = JoinGroupResponse(0, error, generation, kind, name, leader, skips, member_id)
    expected = response_frame(JOIN_GROUP, response, version, correlation_id)
    packed = join_answer(version, correlation_id, error, generation, kind, name, leader, skips, member_id)
    assert packed == b"".join(expected)
