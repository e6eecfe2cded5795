"""Who needs no login pays for none: neither in libraries at the start, nor in another way in."""

from __future__ import annotations

import subprocess
import sys


def test_a_broker_without_tls_and_tokens_loads_none_of_their_libraries() -> None:
    program = "import sys, headrace.cli.serve.node; print([m for m in ('jwt', 'cryptography') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
