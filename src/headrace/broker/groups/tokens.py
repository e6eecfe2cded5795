"""Reply tokens: futures for group responses, which may come long after the request."""

from __future__ import annotations

import asyncio
from typing import Any


def new_token() -> asyncio.Future[Any]:
    """The name of an answer that is owed."""
    return asyncio.get_running_loop().create_future()
