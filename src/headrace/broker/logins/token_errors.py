"""Errors of tokens and their keys. Separate from `tokens`, so that nobody else loads its libraries."""

from __future__ import annotations


class NoKeys(Exception):
    """One sentence: why the keys cannot be had."""


class BadToken(Exception):
    """Why a token is no good. For the audit: nothing of the token is in it."""
