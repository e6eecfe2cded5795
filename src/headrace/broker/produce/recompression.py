"""Recompresses produced batches for topics with a `compression.type`.

Only the payload changes: records are not decoded, and the rest of the header stays.
"""

from __future__ import annotations

import msgspec

from headrace.wire.batch import COMPRESSION_MASK, HEADER_BYTES, BatchHeader, read_header, seal
from headrace.wire.batch_errors import BatchTooLarge
from headrace.wire.compression import CODECS, Compression, compress
from headrace.wire.records import unpack


def recompress(
    batch: memoryview, header: BatchHeader, codec: Compression, max_message_bytes: int, limit_bytes: int
) -> tuple[memoryview, BatchHeader]:
    """The batch with its payload, at most `limit_bytes` when unpacked, compressed by `codec`."""
    # What will not be compressed has to fit as it is: no need to unpack more than that.
    limit_bytes = min(limit_bytes, max_message_bytes) if codec == "none" else limit_bytes
    payload = compress(unpack(batch, header, limit_bytes), codec)
    length = HEADER_BYTES + len(payload)
    if length > max_message_bytes:
        raise BatchTooLarge(f"The batch has {length} bytes as {codec}; this topic accepts {max_message_bytes}.")
    attributes = header.attributes & ~COMPRESSION_MASK | CODECS.index(codec)
    changed = memoryview(
        bytearray(seal(msgspec.structs.replace(header, length=length, attributes=attributes), payload))
    )
    return changed, read_header(changed)
