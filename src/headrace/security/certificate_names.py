"""Maps a client certificate's name to a user: Kafka's `ssl.principal.mapping.rules`.

`RULE:pattern/replacement/[LU]`, several separated by commas, or DEFAULT, the whole distinguished name. The first
pattern that matches the whole name decides; if none does, the client is rejected. A replacement may name the
organisation, `acme/$1`; the certificate itself may not, so a name with a slash does not match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.names import LoginName, parse_login_name

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\n|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d)")
_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}


class BadRule(ValueError):
    """One sentence: what is wrong with the rules."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    case: str

    def apply(self, name: str) -> LoginName | None:
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        used = {int(group) for _, group in _REFERENCE.findall(self.replacement) if group}
        if any("/" in (found[group] or "") for group in used):
            return None
        text = _REFERENCE.sub(lambda part: part[1] or found[int(part[2])] or "", self.replacement)
        return parse_login_name(_CASES[self.case](text))


class CertificateNames:
    """The rules of a broker."""

    def __init__(self, rules: str) -> None:
        self._rules = _parsed(rules)

    def user_of(self, distinguished_name: str) -> LoginName | None:
        """The user of a certificate; None if no rule matches."""
        for rule in self._rules:
            if rule is None:
                return LoginName(DEFAULT_ORGANISATION, distinguished_name)
            if (found := rule.apply(distinguished_name)) is not None:
                return found
        return None


def _parsed(text: str) -> list[_Rule | None]:
    """The rules in order, None standing for DEFAULT."""
    rules: list[_Rule | None] = []
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None or found.end() == at:
            raise BadRule(f"{text[at:].strip()!r} is not RULE:pattern/replacement/[LU] or DEFAULT")
        rules.append(None if found[1] else _rule(found[2], found[3], found[4]))
        at = found.end()
    return rules or [None]


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        # Java writes named groups without the P.
        compiled = re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern))
    except re.error as error:
        raise BadRule(f"the pattern {pattern!r} cannot be read: {error}") from None
    if any(int(group) > compiled.groups for _, group in _REFERENCE.findall(replacement) if group):
        raise BadRule(f"the replacement {replacement!r} names a group that {pattern!r} does not have")
    return _Rule(compiled, replacement, case)
