"""The fuzz target, driven by Hypothesis: from any bytes, and from real requests with pieces of them replaced."""

from __future__ import annotations

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire import codec, frame
from headrace.wire.schema import Payload
from tests.fuzz.fuzz_requests import run
from tests.wire.random_messages import all_requests, random_message

REQUESTS = all_requests()
QUICK = settings(max_examples=400, deadline=None)

some_bytes = st.binary(max_size=300)
some_length = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(lambda n: struct.pack(">i", n)),
    st.integers(-(2**15), 2**15 - 1).map(lambda n: struct.pack(">h", n)),
    st.integers(0, 2**35 - 1).map(codec.unsigned_varint),
)


@QUICK
@given(st.sampled_from(REQUESTS), some_bytes)
def test_any_body_under_a_valid_header(case: tuple[type[Payload], int], body: bytes) -> None:
    cls, version = case
    run(struct.pack(">hhih", cls.api.key, version, 1, -1) + b"\0" + body)


@QUICK
@given(some_bytes)
def test_any_frame(data: bytes) -> None:
    run(data)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(REQUESTS), st.integers(0, 2**32), st.lists(st.tuples(st.floats(0, 1), some_length), max_size=3))
def test_a_real_request_with_other_lengths_in_it(
    case: tuple[type[Payload], int], seed: int, changes: list[tuple[float, bytes]]
) -> None:
    cls, version = case
    data = frame.request_frame(random_message(cls, version, random.Random(seed)), version, 1, "fuzz")[4:]
    run(data)
    for where, length in changes:
        at = 8 + int(where * (len(data) - 8))
        data = data[:at] + length + data[at + len(length) :]
        run(data)
        run(data[:-1])
