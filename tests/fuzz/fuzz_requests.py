"""Fuzz target: the frame of a request, header and body, of any API and version.

One thing holds for any bytes: they decode, or there is one DecodeError. What decodes is written and read again with
the same result, and its bytes never outgrow the frame. By hand, with atheris installed:

    python -m tests.fuzz.fuzz_requests -max_len=4096 corpus/
"""

from __future__ import annotations

import sys
from importlib import import_module

from headrace.wire import codec, frame
from headrace.wire.apis import APIS, request_class
from headrace.wire.codec import DecodeError


def run(data: bytes) -> None:
    """Decodes a frame (without its length) as the server does."""
    try:
        header = frame.read_request_header(data)
        if header.api_key not in APIS:
            return
        cls = request_class(header.api_key)
        message, end = codec.decode(cls, header.api_version, data, header.body)
    except DecodeError:
        return
    assert header.body <= end <= len(data)
    again = codec.encode_bytes(message, header.api_version)
    # Lengths may have been written longer than needed and tags unknown to us are gone: it can only get shorter.
    assert len(again) <= end - header.body
    assert codec.decode(cls, header.api_version, again) == (message, len(again))


def main() -> None:
    atheris = import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
