"""Sizes and times as people write them: `64MiB`, `10m`. One place, so that all commands read and show them alike."""

from __future__ import annotations

import re
from fractions import Fraction

_SIZES = {
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_TIMES = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHOWN_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_SHOWN_TIMES = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")


def parse_size(text: str) -> int | None:
    """Parses `1048576`, `64MiB`, `1.5GB` and the like to bytes; None if the text is not a size."""
    return _parse(text, _SIZES)


def parse_time(text: str) -> int | None:
    """Parses `500`, `500ms`, `10m`, `7d` and the like to milliseconds; None if the text is not a time."""
    return _parse(text, _TIMES)


def show_size(size_bytes: int) -> str:
    return _show(size_bytes, _SHOWN_SIZES)


def show_time(time_ms: int) -> str:
    return _show(time_ms, _SHOWN_TIMES)


def show_approximate_size(size_bytes: int) -> str:
    """`1.4 MiB`: for reading, not for use as a setting."""
    for name, unit in _SHOWN_SIZES:
        if size_bytes >= unit:
            amount = size_bytes / unit
            return f"{amount:.1f} {name}" if amount < 100 else f"{amount:,.0f} {name}"
    return f"{size_bytes} B"


def _parse(text: str, units: dict[str, int]) -> int | None:
    text = text.strip()
    if re.fullmatch(r"-?[0-9][0-9_]*", text):
        return int(text.replace("_", ""))
    match = _QUANTITY.fullmatch(text)
    if match is None or (unit := units.get(match[2].lower())) is None:
        return None
    amount = Fraction(match[1]) * unit
    return int(amount) if amount.denominator == 1 else None


def _show(amount: int, units: tuple[tuple[str, int], ...]) -> str:
    """In the largest unit that is exact, so that the text can be used as a setting again."""
    for name, unit in units:
        if amount >= unit and amount % unit == 0:
            return f"{amount // unit}{name}"
    return str(amount)
