"""Errors of tokens and their keys. Separate from `tokens`, so that importing them loads no libraries."""

from __future__ import annotations


class NoKeys(Exception):
    """One sentence: why the keys cannot be had."""


class BadToken(Exception):
    """Why a token was refused, for the audit log. Contains no part of the token."""
