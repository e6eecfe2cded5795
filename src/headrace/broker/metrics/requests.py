"""Requests by API: their number, duration and error codes.

Counted for every request, so it costs a few additions: where a response has error codes is found once per API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

from headrace.metrics.histogram import Histogram
from headrace.metrics.text import Sample
from headrace.wire.apis import METADATA, SPOKEN
from headrace.wire.errors import ErrorCode
from headrace.wire.schema import Message

_ERROR_CODE: Final = "error_code"
_UNKNOWN: Final = "UNKNOWN"
_NAMES: Final = {int(code): code.name for code in ErrorCode}

Note = Callable[[int], None]
Walk = Callable[[Any, Note], None]


class RequestMetrics:
    """Of one node, since its start."""

    def __init__(self) -> None:
        self._seconds: dict[int, Histogram] = {}
        self._errors: Counter[tuple[int, int]] = Counter()

    def took(self, api_key: int, seconds: float) -> None:
        """A request was answered."""
        found = self._seconds.get(api_key)
        if found is None:
            if api_key not in SPOKEN:
                return
            found = self._seconds[api_key] = Histogram()
        found.observe(seconds)

    def answered(self, api_key: int, response: Any) -> None:
        """Counts the errors in an answer."""
        for walk in _walks(response.__class__, api_key == METADATA):
            walk(response, lambda code: self._count(api_key, code))

    def _count(self, api_key: int, code: int) -> None:
        self._errors[api_key, code] += 1

    def samples(self) -> Iterator[Sample]:
        apis = sorted(self._seconds.items())
        for key, histogram in apis:
            yield Sample("headrace_requests_total", (SPOKEN[key].name,), histogram.count)
        for (key, code), count in sorted(self._errors.items()):
            yield Sample("headrace_request_errors_total", (SPOKEN[key].name, _NAMES.get(code, _UNKNOWN)), count)
        for key, histogram in apis:
            yield Sample("headrace_request_seconds", (SPOKEN[key].name,), histogram)


def error_names(api_key: int, response: Any) -> list[str]:
    """The errors in an answer, each once."""
    codes: set[int] = set()
    for walk in _walks(response.__class__, api_key == METADATA):
        walk(response, codes.add)
    return [_NAMES.get(code, _UNKNOWN) for code in sorted(codes)]


@cache
def _walks(kind: Any, shallow: bool) -> tuple[Walk, ...]:
    """What visits the error codes of an answer. Of a Metadata only its topics' are: it may have 100,000 partitions."""
    return tuple(_walks_into(kind, 1 if shallow else 9))


def _walks_into(kind: type, depth: int) -> Iterator[Walk]:
    for name, hint in get_type_hints(kind).items():
        if name == _ERROR_CODE:
            yield _check
        elif get_origin(hint) is list or any(get_origin(one) is list for one in get_args(hint)):
            element = get_args(hint if get_origin(hint) is list else get_args(hint)[0])[0]
            if depth and isinstance(element, type) and issubclass(element, Message):
                inner = tuple(_walks_into(element, depth - 1))
                if inner:
                    yield _each(name, inner)


def _check(message: Any, note: Note) -> None:
    if message.error_code:
        note(message.error_code)


def _each(name: str, inner: tuple[Walk, ...]) -> Walk:
    def walk(message: Any, note: Note) -> None:
        for element in getattr(message, name) or ():
            for one in inner:
                one(element, note)

    return walk
