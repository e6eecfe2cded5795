"""The response to a Fetch without errors, packed by hand, in the flexible versions.

Every consumer at the tail gets one for each append. The codec wants an object per partition with three more inside
that are never sent, and a call for each length. A test compares both in every version. Responses with an error, and
those of old clients, go through the codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from headrace.wire.compiler.primitives import SMALL_VARINTS, unsigned_varint
from headrace.wire.frame import join_small
from headrace.wire.messages.fetch import AbortedTransaction
from headrace.wire.schema import Buffer

FIRST_VERSION: Final = 12
_IDS_SINCE: Final = 13
_HEAD: Final = struct.Struct(">iibihi")
"""Length, correlation id, tags of the header, throttle time, error, session."""
_PART: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qqb")
_NO_REPLICA: Final = struct.pack(">i", -1)
_NOT_ASKED: Final = b"\0" + _NO_REPLICA
_NONE_ABORTED: Final = b"\x01" + _NO_REPLICA
_SMALL: Final = len(SMALL_VARINTS)

FetchedPartition = tuple[int, int, int, int, Sequence[AbortedTransaction] | None, Sequence[Buffer], int]
"""Number, high watermark, last stable offset, log start, aborted transactions, batches and their size."""
FetchedTopic = tuple[str, bytes, Sequence[FetchedPartition]]
"""Name, id and partitions; the version decides whether name or id is sent."""


def fetch_answer(
    version: int, correlation_id: int, session_id: int, topics: Sequence[FetchedTopic], throttle_ms: int = 0
) -> list[Buffer]:
    """The whole frame as buffers to send: small ones joined, large ones as they are."""
    pieces: list[Buffer] = [b"", unsigned_varint(1 + len(topics))]
    for name, topic_id, parts in topics:
        if version >= _IDS_SINCE:
            pieces.append(topic_id)
        else:
            text = name.encode()
            pieces += (unsigned_varint(1 + len(text)), text)
        pieces.append(unsigned_varint(1 + len(parts)))
        for number, high_watermark, stable_end, log_start, aborted, batches, size_bytes in parts:
            pieces.append(_PART.pack(number, 0, high_watermark, stable_end, log_start))
            pieces.append(_aborted(aborted) if aborted else _NOT_ASKED if aborted is None else _NONE_ABORTED)
            size = 1 + size_bytes
            pieces.append(SMALL_VARINTS[size] if size < _SMALL else unsigned_varint(size))
            pieces += batches
            pieces.append(b"\0")
        pieces.append(b"\0")
    pieces.append(b"\0")
    pieces[0] = _HEAD.pack(_HEAD.size - 4 + sum(map(len, pieces)), correlation_id, 0, throttle_ms, 0, session_id)
    return join_small(pieces)


def _aborted(aborted: Iterable[AbortedTransaction]) -> bytes:
    rows = [_ABORTED.pack(one.producer_id, one.first_offset, 0) for one in aborted]
    return b"".join([unsigned_varint(1 + len(rows)), *rows, _NO_REPLICA])
