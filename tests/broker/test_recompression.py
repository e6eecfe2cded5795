"""Topics whose compression.type says how their batches lie in the log."""

from __future__ import annotations

import pytest

from headrace.broker.produce.recompression import recompress
from headrace.wire.batch import check_produced, read_header
from headrace.wire.batch_errors import BatchTooLarge, InvalidBatch
from headrace.wire.compression import CODECS, Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, decode_batch, encode_batch
from tests.broker.administrator import SET, Administrator, new_topic
from tests.broker.peers import fetch, produce, records_of

RECORDS = [Record(n, 1_700_000_000_000 + n, b"key", b"value " * 50, [("h", b"1")]) for n in range(20)]
MAX_BYTES = 1 << 20


def produced(codec: Compression) -> memoryview:
    batch = encode_batch(RECORDS, compression=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    return memoryview(bytearray(batch))


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_only_the_payload_s_form_changes(source: Compression, target: Compression) -> None:
    batch = produced(source)
    changed, header = recompress(batch, read_header(batch), target, MAX_BYTES, MAX_BYTES)
    assert header == check_produced(changed, MAX_BYTES)
    assert header.compression == target
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert decode_batch(changed) == RECORDS


def test_what_is_too_large_in_its_new_form_is_refused() -> None:
    batch = produced("zstd")
    with pytest.raises(BatchTooLarge):
        recompress(batch, read_header(batch), "none", len(batch) + 10, MAX_BYTES)


def test_a_payload_that_is_not_what_it_says_is_refused() -> None:
    batch = produced("gzip")
    batch[70:90] = b"\0" * 20
    with pytest.raises(InvalidBatch):
        recompress(batch, read_header(batch), "none", MAX_BYTES, MAX_BYTES)


@pytest.mark.parametrize("kind", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_s_batches_get_its_compression(administrator: Administrator, topic: str, kind: str) -> None:
    administrator.create(new_topic(topic, configs={"compression.type": kind, "cleanup.policy": "compact"}))
    for source in CODECS:
        answer = produce(administrator.connection, topic, {0: bytes(encode_batch(RECORDS, compression=source))})[0]
        assert answer.error_code == 0
    found = fetch(administrator.connection, topic, {0: 0})[0]
    assert isinstance(found.records, bytes | bytearray | memoryview)
    assert read_header(found.records).compression == ("none" if kind == "uncompressed" else kind)
    records = records_of(found)
    assert [record.offset for record in records] == list(range(len(RECORDS) * len(CODECS)))
    assert [record.value for record in records] == [record.value for record in RECORDS] * len(CODECS)


def test_the_new_size_counts(administrator: Administrator, topic: str) -> None:
    administrator.create(new_topic(topic, configs={"compression.type": "uncompressed", "max.message.bytes": "2000"}))
    batch = bytes(encode_batch(RECORDS, compression="zstd"))
    assert len(batch) < 2_000
    answer = produce(administrator.connection, topic, {0: batch})[0]
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    administrator.alter(topic, [("compression.type", SET, "producer")])
    assert produce(administrator.connection, topic, {0: batch})[0].error_code == 0
