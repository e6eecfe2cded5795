"""Requests by API: their number, duration and error codes.

Counted for every request, so it costs a few additions: where a response has error codes is found once per API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

from headrace.metrics.histogram import Exemplar, Histogram
from headrace.metrics.text import Sample
from headrace.wire.apis import SPOKEN
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata import MetadataResponse
from headrace.wire.schema import Message

_ERROR_CODE: Final = "error_code"
_UNKNOWN: Final = "UNKNOWN"
_NAMES: Final = {int(code): code.name for code in ErrorCode}

Errors = Counter[tuple[int, int]]
"""How often an API answered with an error code."""
Walk = Callable[[Any, int, Errors], None]
"""Counts the error codes of a part of an answer to the API of that key."""


class RequestMetrics:
    """Request metrics of one node, since its start."""

    def __init__(self) -> None:
        self._seconds: dict[int, Histogram] = {}
        self._observe: dict[int, Callable[[float], None]] = {}
        """The `observe` methods of the histograms in `_seconds`: every request calls one."""
        self._errors: Errors = Counter()

    def took(self, api_key: int, seconds: float) -> None:
        """A request was answered."""
        try:
            self._observe[api_key](seconds)
        except KeyError:
            if api_key in SPOKEN:
                self._histogram(api_key).observe(seconds)

    def traced(self, api_key: int, exemplar: Exemplar) -> None:
        """A request was recorded as a trace."""
        self._histogram(api_key).exemplify(exemplar)

    def _histogram(self, api_key: int) -> Histogram:
        if api_key not in self._seconds:
            self._seconds[api_key] = Histogram()
            self._observe[api_key] = self._seconds[api_key].observe
        return self._seconds[api_key]

    def answered(self, api_key: int, response: Any) -> None:
        """Counts the errors in an answer."""
        _walk_of(response.__class__)(response, api_key, self._errors)

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
    errors: Errors = Counter()
    _walk_of(response.__class__)(response, api_key, errors)
    return [_NAMES.get(code, _UNKNOWN) for _, code in sorted(errors)]


@cache
def _walk_of(kind: type) -> Walk:
    """A visitor of a response's error codes. Of Metadata only the topics': there may be 100,000 partitions."""
    return _in_turn(_walks_into(kind, 1 if kind is MetadataResponse else 9))


def _walks_into(kind: type, depth: int) -> list[Walk]:
    walks: list[Walk] = []
    for name, hint in get_type_hints(kind).items():
        if name == _ERROR_CODE:
            walks.append(_check)
        elif get_origin(hint) is list or any(get_origin(one) is list for one in get_args(hint)):
            element = get_args(hint if get_origin(hint) is list else get_args(hint)[0])[0]
            if depth and isinstance(element, type) and issubclass(element, Message):
                inner = _walks_into(element, depth - 1)
                if inner:
                    walks.append(_check_each(name) if inner == [_check] else _each(name, _in_turn(inner)))
    return walks


def _in_turn(walks: list[Walk]) -> Walk:
    if len(walks) == 1:
        return walks[0]

    def walk(message: Any, api_key: int, errors: Errors) -> None:
        for one in walks:
            one(message, api_key, errors)

    return walk


def _check(message: Any, api_key: int, errors: Errors) -> None:
    if message.error_code:
        errors[api_key, message.error_code] += 1


def _check_each(name: str) -> Walk:
    """For elements with an error code and nothing else to visit, as a Produce has: a call less for each."""
    elements = attrgetter(name)

    def walk(message: Any, api_key: int, errors: Errors) -> None:
        for element in elements(message) or ():
            if element.error_code:
                errors[api_key, element.error_code] += 1

    return walk


def _each(name: str, inner: Walk) -> Walk:
    elements = attrgetter(name)

    def walk(message: Any, api_key: int, errors: Errors) -> None:
        for element in elements(message) or ():
            inner(element, api_key, errors)

    return walk
