"""Errors that prevent a start, as one sentence each."""

from __future__ import annotations

from headrace.broker.logins.token_errors import NoKeys
from headrace.cli.serve.redis_trouble import explain
from headrace.store.cluster.nodes.nodes import NodeIdTaken
from headrace.store.embedded.data_directory import CannotStart
from headrace.store.redis.errors import StoreError, StoreRefused

START_TROUBLE = (CannotStart, NoKeys, NodeIdTaken, StoreError, StoreRefused)


def sentence_of(error: Exception) -> str:
    """The message for one of START_TROUBLE."""
    if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
        what, advice = explain(error)
        return f"{what}; {advice}"
    return str(error)
