"""What ends the story early."""

from __future__ import annotations


class Disagreement(Exception):
    """Something is not as it should be, in one sentence."""
