"""Batches under random and mutated bytes; the property itself is in fuzz_batches.py."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.compression import CODECS
from headrace.wire.records import Record, encode_batch
from tests.fuzz.fuzz_batches import run

RECORDS = [Record(i, 1_700_000_000_000 + i, b"k%d" % i, b"value" * i, [("h", b"1")] * i) for i in range(4)]
SEEDS = [encode_batch(RECORDS, compression=codec) for codec in CODECS]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good batch with a few changes: bytes set, runs cut out, put in, or repeated."""
    batch = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        pos = draw(st.integers(0, len(batch)))
        length = draw(st.integers(0, 8))
        match draw(st.sampled_from(["set", "cut", "insert", "repeat"])):
            case "set":
                batch[pos : pos + length] = draw(st.binary(min_size=length, max_size=length))
            case "cut":
                del batch[pos : pos + length]
            case "insert":
                batch[pos:pos] = draw(st.binary(max_size=length))
            case _:
                batch[pos:pos] = batch[pos : pos + length]
    return bytes(batch)


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_random_bytes_are_decoded_or_refused(data: bytes) -> None:
    run(data)


@given(mutated())
@settings(max_examples=1500, deadline=None)
def test_mutated_batches_are_decoded_or_refused(data: bytes) -> None:
    run(data)


def test_the_seeds_themselves_pass_the_property() -> None:
    for seed in SEEDS:
        run(seed)
