"""The server that tests start: the one that comes with the broker, or another version of Redis or Valkey.

`TEST_REDIS_SERVER=/path/to/redis-server` names another one, to see that the store works with it too.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.store.embedded.options import find_binary

VARIABLE = "TEST_REDIS_SERVER"


def server_binary() -> Path:
    """The program to start."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else find_binary()
