"""A config's type, default and valid values, checked and refused with Kafka's messages.

The types have the numbers that DescribeConfigs sends. A checked value is returned in the one form in which it is stored
and shown, so that ` 100 ` and `100` are the same everywhere.
"""

from __future__ import annotations

import math
import re
from enum import IntEnum

import msgspec

from headrace.wire.errors import ErrorCode, KafkaError

INT64_MAX = (1 << 63) - 1
_BITS = {"INT": 31, "LONG": 63}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")


class ConfigType(IntEnum):
    """Type of a config's value."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """One config by its name."""

    name: str
    type: ConfigType
    default: str
    low: int | None = None
    high: int | None = None
    or_equal: int | None = None
    """A value outside the range that is valid too."""
    choices: tuple[str, ...] = ()
    is_throttle: bool = False
    """A list of `partition:broker`, or `*`."""

    def check(self, value: str) -> str:
        """The value as it is stored; INVALID_CONFIG if it is none."""
        text = value.strip()
        if self.type is ConfigType.LIST:
            return self._check_list(text)
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._invalid(value, "Expected value to be either true or false")
            return text.lower()
        if self.type is ConfigType.STRING:
            self._check_choice(text)
            return text
        number = self._parse_number(text, value)
        self._check_range(number)
        return str(number)

    @property
    def valid_values(self) -> str:
        """For people."""
        if self.choices:
            return ", ".join(self.choices)
        if self.is_throttle:
            return "`*` or partition:broker, ..."
        if self.type is ConfigType.BOOLEAN:
            return "true, false"
        if self.low is None:
            return "any"
        upper = " or more" if self.high is None else f" to {self.high}"
        also = "" if self.or_equal is None else f", or {self.or_equal}"
        return f"{self.low}{upper}{also}"

    def _parse_number(self, text: str, value: str) -> int | float:
        if self.type is ConfigType.DOUBLE:
            if not _FRACTION.fullmatch(text) or math.isinf(float(text)):
                raise self._invalid(value, "Not a number of type DOUBLE")
            return float(text)
        name = self.type.name
        if not _WHOLE_NUMBER.fullmatch(text) or not -(1 << _BITS[name]) <= int(text) < 1 << _BITS[name]:
            raise self._invalid(value, f"Not a number of type {name}")
        return int(text)

    def _check_range(self, number: float) -> None:
        if number == self.or_equal:
            return
        if self.or_equal is not None and not (self.low or 0) <= number <= (self.high or 0):
            raise self._invalid(number, f"Value must be between {self.low} and {self.high} or equal to {self.or_equal}")
        if self.low is not None and number < self.low:
            raise self._invalid(number, f"Value must be at least {self.low}")
        if self.high is not None and number > self.high:
            raise self._invalid(number, f"Value must be no more than {self.high}")

    def _check_choice(self, text: str) -> None:
        if self.choices and text not in self.choices:
            raise self._invalid(text, f"String must be one of: {', '.join(self.choices)}")

    def _check_list(self, text: str) -> str:
        items = [item.strip() for item in text.split(",")] if text else []
        if self.is_throttle and items != ["*"] and not all(_THROTTLED.fullmatch(item) for item in items):
            raise self._invalid(
                f"[{', '.join(items)}]",
                f"{self.name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )
        for item in items:
            self._check_choice(item)
        return ",".join(dict.fromkeys(items))

    def _invalid(self, value: object, why: str) -> KafkaError:
        return invalid_config(f"Invalid value {value} for configuration {self.name}: {why}")


def invalid_config(message: str) -> KafkaError:
    """INVALID_CONFIG with a sentence for a person."""
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
