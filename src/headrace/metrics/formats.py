"""Which of the two text forms a scraper gets, from its Accept header, as Prometheus' own libraries choose."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum


class TextFormat(StrEnum):
    """By content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_VERSIONS = {
    "text/plain": ("0.0.4", TextFormat.PROMETHEUS),
    "*/*": ("", TextFormat.PROMETHEUS),
    "application/openmetrics-text": ("1.0.0", TextFormat.OPENMETRICS),
}


def negotiated(accept: str) -> TextFormat:
    """The most wanted form that we have; of equally wanted ones the first. Anybody else gets Prometheus text."""
    wanted = sorted(_offers(accept), key=lambda offer: -offer[0])
    return next((form for quality, form in wanted if quality > 0), TextFormat.PROMETHEUS)


def _offers(accept: str) -> Iterator[tuple[float, TextFormat]]:
    """Quality and form of each media range that we know, in order."""
    for part in accept.lower().split(","):
        media, *rest = (word.strip() for word in part.split(";"))
        parameters = {name.strip(): value.strip() for name, _, value in (word.partition("=") for word in rest)}
        version, form = _VERSIONS.get(media, ("", None))
        if form is not None and parameters.get("version", version).strip('"') == version:
            yield _quality(parameters.get("q", "1")), form


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
