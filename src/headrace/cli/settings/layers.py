"""Settings in force: defaults < TOML file < environment < flags, each value with its source.

The error for a bad value names that source, so that whoever set it can find it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.cli.quantities import parse_size, parse_time
from headrace.cli.settings.setting import Setting, ValueKind
from headrace.cli.settings.table import MAX_INT32, SETTINGS, Settings
from headrace.security.listeners import Listener, ListenerError, parse_listener, split_address
from headrace.store.cluster.nodes.endpoints import DEFAULT_LISTENER

PREFIX = "HEADRACE_"
CONFIG_VARIABLE = "HEADRACE_CONFIG"
BOOTSTRAP_VARIABLE = "HEADRACE_BOOTSTRAP"
"""Where commands find a broker; not a setting of the broker."""
CLIENT_CONFIG_VARIABLE = "HEADRACE_CLIENT_CONFIG"
"""How commands log in there."""
ADMIN_PASSWORD_VARIABLE = "HEADRACE_ADMIN_PASSWORD"
"""Not a setting, so that it is shown nowhere; `serve` removes it from the environment."""
_OTHER_VARIABLES = (CONFIG_VARIABLE, BOOTSTRAP_VARIABLE, CLIENT_CONFIG_VARIABLE, ADMIN_PASSWORD_VARIABLE)
DEFAULT = "default"
_ALL = "`headrace serve --help` lists all"

_SERVICE_LINKS = {
    r"SERVICE_HOST": r"[0-9a-fA-F.:]+",
    r"SERVICE_PORT(_[A-Z0-9_]+)?": r"[0-9]+",
    r"PORT(_[0-9]+_(TCP|UDP|SCTP))?": r"(tcp|udp|sctp)://.+",
    r"PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)": r"[0-9a-zA-Z.:]+",
}
"""Variables that Kubernetes sets in every pod for services named `headrace` or `headrace-...`, and their values.

The values are looked at because a setting that was misspelt may have such a name, but hardly such a value too.
"""
_SERVICE_LINK = re.compile("|".join(f"HEADRACE_([A-Z0-9_]+_)?{name}={value}" for name, value in _SERVICE_LINKS.items()))

_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
_LEVELS = (
    ("message_max_bytes", "frame_limit_bytes"),
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    ("frame_limit_bytes", "request_budget_bytes"),
    ("default_partitions", "topic_partitions_max"),
    ("topic_partitions_max", "partitions_max"),
)
"""Pairs whose first value must not exceed the second."""


class SettingsError(Exception):
    """A sentence for the user: which setting, its source, and the allowed values."""


class ConfigRow(Struct, frozen=True):
    """One line of `headrace config`."""

    name: str
    value: str
    source: str
    description: str


class Loaded(Struct, frozen=True):
    """Settings, and the source of each that is not a default."""

    settings: Settings
    sources: dict[str, str]

    def rows(self) -> Iterator[ConfigRow]:
        for name, setting in SETTINGS.items():
            value = setting.show(getattr(self.settings, name))
            if name == "redis":
                value = without_password(value)
            elif name == "lake_storage":
                value = without_secrets(value)
            yield ConfigRow(name, value, self.sources.get(name, DEFAULT), setting.description)


def load(config: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Loaded:
    """The settings in force; in `flags`, None means that a flag was not given."""
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value, source in (*_from_file(config), *_from_environment(environ), *_from_flags(flags)):
        values[name] = parse(SETTINGS[name], value, source)
        sources[name] = source
    settings = _with_default_listener(Settings(**values), sources)
    _check_together(settings, sources)
    return Loaded(settings, sources)


def _with_default_listener(settings: Settings, sources: Mapping[str, str]) -> Settings:
    """Adds the listener `default` if `host` or `port` is set beside named listeners."""
    named = [parse_listener(text).name for text in settings.listen]
    if not named or DEFAULT_LISTENER in named or not {"host", "port"} & sources.keys():
        return settings
    return replace(settings, listen=(str(default_listener(settings)), *settings.listen))


def default_listener(settings: Settings) -> Listener:
    """The listener that `host` and `port` describe."""
    advertised = split_address(settings.advertised)
    return Listener(name=DEFAULT_LISTENER, host=settings.host, port=settings.port, advertised=advertised)


def listeners_of(settings: Settings) -> list[Listener]:
    """All listeners of a broker, `default` first if there is one."""
    found = [parse_listener(text) for text in settings.listen] or [default_listener(settings)]
    return sorted(found, key=lambda listener: listener.name != DEFAULT_LISTENER)


def _from_file(config: Path | None) -> Iterator[tuple[str, Any, str]]:
    if config is None:
        return
    import tomllib  # needed only for a file

    try:
        content = tomllib.loads(config.read_text())
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"cannot read the settings file {config}: {reason}") from None
    except tomllib.TOMLDecodeError as e:
        raise SettingsError(f"the settings file {config} is not valid TOML: {e}") from None
    for name, value in content.items():
        if name not in SETTINGS:
            near = _nearest(name)
            hint = f"did you mean {near}?" if near else _ALL
            raise SettingsError(f"{config} has an unknown setting {name!r}; {hint}")
        yield name, value, f"file {config}"


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    known = {setting.variable: name for name, setting in SETTINGS.items()}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or _SERVICE_LINK.fullmatch(f"{variable}={value}"):
            continue
        if variable in _OTHER_VARIABLES:
            continue
        if variable not in known:
            near = _nearest(variable.removeprefix(PREFIX).lower())
            hint = f"did you mean {PREFIX}{near.upper()}?" if near else _ALL
            raise SettingsError(f"the environment has an unknown setting {variable}; {hint}")
        if value:
            yield known[variable], value, f"environment {variable}"


def _from_flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for name, value in flags.items():
        if value is not None:
            yield name, value, f"flag {SETTINGS[name].flag}"


def parse(setting: Setting, value: Any, source: str) -> Any:
    """Converts a value from any source to the setting's type, or raises SettingsError."""
    parsed, wanted = _READERS[setting.kind](setting, value)
    if parsed is None:
        shown = without_password(value) if setting.name == "redis" and isinstance(value, str) else value
        raise SettingsError(f"{setting.name} = {shown!r} from {source} must be {wanted}")
    return parsed


def _read_number(setting: Setting, value: Any) -> tuple[Any, str]:
    read = parse_time if setting.kind is ValueKind.TIME else parse_size
    if isinstance(value, str) and setting.kind is ValueKind.INTEGER:
        number = parse_size(value) if re.fullmatch(r"\s*-?[0-9_]+\s*", value) else None
    elif isinstance(value, str):
        number = read(value)
    else:
        number = value if type(value) is int else None
    low, high = setting.low, setting.high
    is_too_high = number is not None and high is not None and number > high
    if is_too_high or (number is not None and low is not None and number < low):
        number = None
    what = {
        ValueKind.INTEGER: "a whole number",
        ValueKind.SIZE: "a size in bytes or like 64MiB",
        ValueKind.TIME: "a time in milliseconds or like 10m",
    }[setting.kind]
    return number, f"{what}, {_bounds(setting, is_too_high)}"


def _bounds(setting: Setting, is_too_high: bool) -> str:
    """The limits to name: an upper one that nobody meets by chance only to who is above it."""
    if setting.high is not None and (is_too_high or setting.high < MAX_INT32):
        return f"from {setting.show(setting.low)} to {setting.show(setting.high)}"
    return f"at least {setting.show(setting.low)}"


def _read_switch(setting: Setting, value: Any) -> tuple[Any, str]:
    if isinstance(value, str):
        word = value.strip().lower()
        value = True if word in _TRUE else False if word in _FALSE else None
    return value if isinstance(value, bool) else None, "true or false"


def _read_choice(setting: Setting, value: Any) -> tuple[Any, str]:
    word = value.strip().lower() if isinstance(value, str) else None
    return word if word in setting.choices else None, f"one of {', '.join(setting.choices)}"


def _read_path(setting: Setting, value: Any) -> tuple[Any, str]:
    text = str(value) if isinstance(value, str | Path) else ""
    return Path(text).expanduser() if text else None, "a path"


def _read_text(setting: Setting, value: Any) -> tuple[Any, str]:
    if not isinstance(value, str):
        return None, "a string"
    match setting.name:
        case "host" | "http_host":
            return value or None, "an address"
        case "advertised":
            return value if not value or split_address(value) else None, "HOST:PORT, or empty"
        case "redis":
            trouble = _trouble_with_redis_url(value) if value else ""
            return None if trouble else value, f"a URL such as redis://HOST:6379, or empty: it {trouble}"
        case "key_prefix":
            good = re.fullmatch(r"[A-Za-z0-9._:-]+", value) is not None
            return value if good else None, "letters, digits and the characters . _ : -"
        case _:
            return value, ""


def _read_listeners(setting: Setting, value: Any) -> tuple[Any, str]:
    """A list, or a string separated by spaces."""
    texts = value.replace(";", " ").split() if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return None, "a list of listeners such as public=SASL_SSL://0.0.0.0:9093"
    try:
        found = [parse_listener(text) for text in texts]
    except ListenerError as error:
        return None, f"listeners such as public=SASL_SSL://0.0.0.0:9093: {error}"
    names = [listener.name for listener in found]
    if len(set(names)) < len(names):
        return None, "listeners with a name of their own each"
    return tuple(map(str, found)), ""


def _trouble_with_redis_url(url: str) -> str:
    """What is wrong with it, or nothing."""
    from headrace.store.redis.address import parse_address  # it imports ssl, which most commands do not need

    try:
        parse_address(url)
    except ValueError as error:
        return str(error)
    return ""


_READERS = {
    ValueKind.INTEGER: _read_number,
    ValueKind.SIZE: _read_number,
    ValueKind.TIME: _read_number,
    ValueKind.SWITCH: _read_switch,
    ValueKind.CHOICE: _read_choice,
    ValueKind.TEXT: _read_text,
    ValueKind.PATH: _read_path,
    ValueKind.LISTENERS: _read_listeners,
}


def without_secrets(pairs: str) -> str:
    """KEY=VALUE,... with credentials hidden."""
    hidden = re.compile(r"([^=,]*(?:secret|token|password|key)[^=,]*=)[^,]*", re.IGNORECASE)
    return hidden.sub(r"\1***", pairs)


def without_password(url: str) -> str:
    """The URL, safe to show and log; also one that is malformed, such as by an @ or / of a password."""
    url = re.sub(r"(?<=password=)[^&#]*", "***", url)
    return re.sub(r"(?<=://)([^:/?#@]*):.*@", r"\1:***@", url)


def _check_together(settings: Settings, sources: dict[str, str]) -> None:
    for lower, upper in _LEVELS:
        low, high = getattr(settings, lower), getattr(settings, upper)
        if low > high:
            raise SettingsError(
                f"{lower} = {SETTINGS[lower].show(low)} ({sources.get(lower, DEFAULT)}) must not exceed "
                f"{upper} = {SETTINGS[upper].show(high)} ({sources.get(upper, DEFAULT)})"
            )


def _nearest(name: str) -> str:
    """The setting that was probably meant, or an empty string."""
    import difflib  # needed only after a mistake

    near = difflib.get_close_matches(name, list(SETTINGS), n=1, cutoff=0.6)
    return near[0] if near else ""
