"""Compressing a produced batch again, for topics whose `compression.type` says how.

Only the payload changes its form: the records inside are not decoded, and the header keeps what it says of them.
"""

from __future__ import annotations

import msgspec

from headrace.wire.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    BatchHeader,
    BatchTooLarge,
    InvalidBatch,
    crc_of,
    pack_header,
)
from headrace.wire.compression import CODECS, Compression, DecompressionFailed, OutputTooLarge, compress, decompress
from headrace.wire.records import MAX_DECOMPRESSED_BYTES


def recompress(
    batch: memoryview, header: BatchHeader, codec: Compression, max_message_bytes: int
) -> tuple[memoryview, BatchHeader]:
    """The batch with its payload compressed by `codec`; itself if it is already."""
    if header.compression == codec:
        return batch, header
    # What will not be compressed has to fit as it is: no need to unpack more than that.
    limit = max_message_bytes if codec == "none" else MAX_DECOMPRESSED_BYTES
    try:
        payload = compress(decompress(batch[HEADER_BYTES:], header.compression, limit), codec)
    except DecompressionFailed as error:
        raise InvalidBatch(str(error)) from None
    except OutputTooLarge as error:
        raise BatchTooLarge(str(error)) from None
    length = HEADER_BYTES + len(payload)
    if length > max_message_bytes:
        raise BatchTooLarge(f"The batch has {length} bytes as {codec}; this topic takes {max_message_bytes}.")
    attributes = header.attributes & ~COMPRESSION_MASK | CODECS.index(codec)
    changed = msgspec.structs.replace(header, length=length, attributes=attributes)
    changed = msgspec.structs.replace(changed, crc=crc_of(pack_header(changed) + payload))
    return memoryview(bytearray(pack_header(changed) + payload)), changed
