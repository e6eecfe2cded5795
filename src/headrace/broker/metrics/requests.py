"""Requests by API: their number, duration and error codes.

Counted for every request, so it costs a few additions: where a response has error codes is found once per API.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

from headrace.metrics.histogram import SECONDS, Exemplar, Histogram
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
Elements = Callable[[Any], list[Any] | None]
Path = tuple[str, ...]
"""The lists, each in an element of the one before, that lead to elements with an error code."""


class RequestMetrics:
    """Of one node, since its start."""

    def __init__(self) -> None:
        self._seconds: dict[int, Histogram] = {}
        self._errors: Errors = Counter()

    def took(self, api_key: int, seconds: float) -> None:
        """Counts an answered request. On the hot path: `observe` without a call."""
        try:
            found = self._seconds[api_key]
        except KeyError:
            if api_key not in SPOKEN:
                return
            found = self._seconds[api_key] = Histogram()
        found.counts[bisect_left(SECONDS, seconds)] += 1
        found.total += seconds

    def number(self, api_key: int) -> int:
        """How many requests of an API were answered."""
        found = self._seconds.get(api_key)
        return found.count if found is not None else 0

    def traced(self, api_key: int, exemplar: Exemplar) -> None:
        """A request was recorded as a trace."""
        self._seconds.setdefault(api_key, Histogram()).exemplify(exemplar)

    def answered(self, api_key: int, response: Any) -> None:
        """Counts the errors in an answer."""
        _WALKS[response.__class__](response, api_key, self._errors)

    def count_error(self, api_key: int, code: int) -> None:
        """The same for an answer that has one error, or none, and is packed by hand."""
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
    errors: Errors = Counter()
    _WALKS[response.__class__](response, api_key, errors)
    return [_NAMES.get(code, _UNKNOWN) for _, code in sorted(errors)]


def _walk_of(kind: type) -> Walk:
    """Visits the error codes of an answer. In Metadata only those of topics: it may have 100,000 partitions."""
    walks = [_walk(path) for path in _paths_into(kind, 1 if kind is MetadataResponse else 9)]
    if len(walks) == 1:
        return walks[0]

    def walk(message: Any, api_key: int, errors: Errors) -> None:
        for one in walks:
            one(message, api_key, errors)

    return walk


class _Walks(dict[type, Walk]):
    """By class of answer, found when the first comes."""

    def __missing__(self, kind: type) -> Walk:
        self[kind] = found = _walk_of(kind)
        return found


_WALKS: Final = _Walks()


def _paths_into(kind: type, depth: int) -> Iterator[Path]:
    for name, hint in get_type_hints(kind).items():
        if name == _ERROR_CODE:
            yield ()
        elif get_origin(hint) is list or any(get_origin(one) is list for one in get_args(hint)):
            element = get_args(hint if get_origin(hint) is list else get_args(hint)[0])[0]
            if depth and isinstance(element, type) and issubclass(element, Message):
                yield from ((name, *path) for path in _paths_into(element, depth - 1))


def _walk(path: Path) -> Walk:
    """Loops for most answers, such as a Produce's, and further ones around them for the rest."""
    match path:
        case ():
            return _check
        case (name,):
            return _check_each(attrgetter(name))
        case (outer, inner):
            return _check_each_of_each(attrgetter(outer), attrgetter(inner))
        case (name, *rest):
            return _each(attrgetter(name), _walk(tuple(rest)))
    raise AssertionError(path)


def _check(message: Any, api_key: int, errors: Errors) -> None:
    if message.error_code:
        errors[api_key, message.error_code] += 1


def _check_each(elements: Elements) -> Walk:
    def walk(message: Any, api_key: int, errors: Errors) -> None:
        for element in elements(message) or ():
            if element.error_code:
                errors[api_key, element.error_code] += 1

    return walk


def _check_each_of_each(outer: Elements, inner: Elements) -> Walk:
    def walk(message: Any, api_key: int, errors: Errors) -> None:
        for part in outer(message) or ():
            for element in inner(part) or ():
                if element.error_code:
                    errors[api_key, element.error_code] += 1

    return walk


def _each(elements: Elements, inner: Walk) -> Walk:
    def walk(message: Any, api_key: int, errors: Errors) -> None:
        for element in elements(message) or ():
            inner(element, api_key, errors)

    return walk
