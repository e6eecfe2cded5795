"""Tokens: what a request to a group has its answer by, which may come after many others."""

from __future__ import annotations

import asyncio
from typing import Any


def new_token() -> asyncio.Future[Any]:
    """The name of an answer that is owed."""
    return asyncio.get_running_loop().create_future()
