"""The error that ends the demo early."""

from __future__ import annotations


class Disagreement(Exception):
    """A check failed; the message is one sentence."""
