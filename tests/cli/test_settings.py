"""Settings: one table behind flags, variables, file and docs; a mistake is one sentence that names its place."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.options import BrokerOptions
from headrace.cli.quantities import parse_size, parse_time, show_size, show_time
from headrace.cli.settings.layers import Loaded, SettingsError, load, without_password
from headrace.cli.settings.options import setting_options
from headrace.cli.settings.page import render_docs
from headrace.cli.settings.rooms import options_for, setting_of
from headrace.cli.settings.table import SETTINGS, Settings
from headrace.groups.settings import GroupSettings
from headrace.security.listeners import split_address
from headrace.store.options import StoreOptions

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.toml"
    path.write_text(text)
    return path


# The table.


def test_every_setting_is_described_and_its_default_is_valid() -> None:
    for name, setting in SETTINGS.items():
        assert setting.description.endswith("."), name
        assert setting.section, name
        written = setting.show(setting.default)
        if written:
            assert getattr(load(None, {setting.variable: written}, {}).settings, name) == setting.default


def test_without_anything_set_the_defaults_are_in_force() -> None:
    loaded = load(None, {"PATH": "/bin"}, {"port": None})
    assert loaded.settings == Settings()
    assert {row.source for row in loaded.rows()} == {"default"}


def test_the_page_of_settings_is_current() -> None:
    assert DOCS.read_text() == render_docs(), "docs/settings.md is out of date; run: make docs"


def test_a_room_that_is_told_nothing_does_what_the_command_does_by_default() -> None:
    for room in (BrokerOptions, StoreOptions, GroupSettings):
        assert options_for(room, Settings()) == room()


def test_no_default_is_written_twice() -> None:
    """What a room has an option for takes its default from there: by name, not as a number of its own."""
    rooms = (BrokerOptions, StoreOptions, GroupSettings)
    of_rooms = {setting_of(room, option) for room in rooms for option in room.__struct_fields__}
    [table] = [node for node in ast.parse(inspect.getsource(Settings)).body if isinstance(node, ast.ClassDef)]
    fields = [node for node in table.body if isinstance(node, ast.AnnAssign)]
    assert len(fields) == len(SETTINGS)
    for field in fields:
        assert isinstance(field.target, ast.Name)
        if field.target.id in of_rooms:
            assert isinstance(field.value, ast.Attribute), f"{field.target.id} has a default of its own"


def test_every_option_of_a_room_can_be_set_but_for_a_few() -> None:
    inner = {
        (room, option)
        for room in (BrokerOptions, StoreOptions, GroupSettings)
        for option in room.__struct_fields__
        if setting_of(room, option) is None
    }
    assert inner == {
        (StoreOptions, "producer_expiration_ms"),
        (GroupSettings, "new_member_join_timeout_ms"),
    }


# Layers.


def test_file_then_environment_then_flag_decide_and_each_value_knows_its_source(tmp_path: Path) -> None:
    path = toml(tmp_path, 'port = 1001\nhost = "file"\nkey_prefix = "file"\n')
    loaded = load(path, {"HEADRACE_HOST": "env", "HEADRACE_KEY_PREFIX": "env"}, {"key_prefix": "flag"})
    settings = loaded.settings
    assert (settings.port, settings.host, settings.key_prefix, settings.node_id) == (1001, "env", "flag", 0)
    sources = {row.name: row.source for row in loaded.rows()}
    assert sources["port"] == f"file {path}"
    assert sources["host"] == "environment HEADRACE_HOST"
    assert sources["key_prefix"] == "flag --key-prefix"
    assert sources["node_id"] == "default"


def test_the_file_can_be_named_in_the_environment(tmp_path: Path) -> None:
    path = toml(tmp_path, "port = 1001")
    assert load(None, {"HEADRACE_CONFIG": str(path)}, {}).settings.port == 1001


def test_sizes_times_and_switches_are_read_as_people_write_them(tmp_path: Path) -> None:
    path = toml(tmp_path, 'tail_cache_bytes = "1.5GiB"\nconnections_idle_ms = "10m"\nauto_create_topics = false\n')
    environ = {"HEADRACE_STORE_TIMEOUT_MS": "500ms", "HEADRACE_DELETE_TOPICS_ENABLED": "no", "HEADRACE_LAKE": ""}
    settings = load(path, environ, {"maxmemory_bytes": "2GB", "log_retention_ms": "-1"}).settings
    assert settings.tail_cache_bytes == 3 << 29
    assert settings.connections_idle_ms == 600_000
    assert settings.store_timeout_ms == 500
    assert settings.maxmemory_bytes == 2_000_000_000
    assert settings.log_retention_ms == -1
    assert not settings.auto_create_topics
    assert not settings.delete_topics_enabled


def test_the_environment_of_a_kubernetes_service_of_our_name_is_no_setting() -> None:
    environ = {
        "HEADRACE_PORT": "tcp://10.0.0.7:9092",
        "HEADRACE_PORT_9092_TCP": "tcp://10.0.0.7:9092",
        "HEADRACE_PORT_9092_TCP_ADDR": "10.0.0.7",
        "HEADRACE_SERVICE_HOST": "10.0.0.7",
        "HEADRACE_SERVICE_PORT_KAFKA": "9092",
    }
    assert load(None, environ, {}).settings == Settings()


def test_the_environment_of_any_kubernetes_service_that_begins_with_our_name_is_no_setting() -> None:
    environ = {
        "HEADRACE_REDIS_SERVICE_HOST": "10.0.0.8",
        "HEADRACE_REDIS_SERVICE_PORT": "6379",
        "HEADRACE_REDIS_SERVICE_PORT_REDIS": "6379",
        "HEADRACE_REDIS_PORT": "tcp://10.0.0.8:6379",
        "HEADRACE_REDIS_PORT_6379_TCP": "tcp://10.0.0.8:6379",
        "HEADRACE_REDIS_PORT_6379_TCP_PROTO": "tcp",
        "HEADRACE_REDIS_PORT_6379_TCP_PORT": "6379",
        "HEADRACE_REDIS_PORT_6379_TCP_ADDR": "10.0.0.8",
        "HEADRACE_HTTP_PORT": "tcp://[fd00::1]:9080",
    }
    assert load(None, environ, {}).settings == Settings()


@pytest.mark.parametrize("variable", ["HEADRACE_HTPP_PORT", "HEADRACE_REDIS_PORT", "HEADRACE_PORT_"])
def test_a_misspelt_setting_is_not_taken_for_a_service(variable: str) -> None:
    with pytest.raises(SettingsError, match=f"unknown setting {variable};"):
        load(None, {variable: "9080"}, {})


# Mistakes.


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (
            {"HEADRACE_PORT": "99999"},
            "port = '99999' from environment HEADRACE_PORT must be a whole number, from 0 to 65535",
        ),
        ({"HEADRACE_PORT": "64KiB"}, "port = '64KiB' from environment HEADRACE_PORT must be a whole number"),
        ({"HEADRACE_STORE_TIMEOUT_MS": "5 parsecs"}, "a time in milliseconds or like 10m, at least 10ms"),
        ({"HEADRACE_NODE_ID": "2147483648"}, "a whole number, from -1 to 2147483647"),
        ({"HEADRACE_TAIL_CACHE_BYTES": "64m"}, "a size in bytes or like 64MiB, at least -1"),
        ({"HEADRACE_DURABILITY": "sometimes"}, "must be one of always, everysec, memory"),
        ({"HEADRACE_AUTO_CREATE_TOPICS": "maybe"}, "must be true or false"),
        ({"HEADRACE_ADVERTISED": "kafka"}, "must be HOST:PORT, or empty"),
        ({"HEADRACE_REDIS": "localhost:6379"}, "must be a URL such as redis://HOST:6379, or empty: it does not start"),
        ({"HEADRACE_REDIS": "redis+cluster://h/1"}, "it names database 1: a cluster has only database 0"),
        ({"HEADRACE_REDIS": "redis+sentinel://h"}, "write redis+sentinel://HOST:PORT,HOST:PORT/NAME/0"),
        ({"HEADRACE_KEY_PREFIX": "a{b}"}, "must be letters, digits and the characters"),
        ({"HEADRACE_DATADIR": "x"}, "unknown setting HEADRACE_DATADIR; did you mean HEADRACE_DATA_DIR?"),
        ({"HEADRACE_XYZZY": "x"}, "unknown setting HEADRACE_XYZZY; `headrace serve --help` lists all"),
        (
            {"HEADRACE_GROUP_MIN_SESSION_TIMEOUT_MS": "1h"},
            "group_min_session_timeout_ms = 1h (environment HEADRACE_GROUP_MIN_SESSION_TIMEOUT_MS) must not exceed "
            "group_max_session_timeout_ms = 30m (default)",
        ),
    ],
)
def test_a_bad_variable_is_one_sentence_that_names_it(environ: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(None, environ, {})
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "unknown setting 'prot'; did you mean port?"),
        ("data-dir = 'x'", "unknown setting 'data-dir'; did you mean data_dir?"),
        ("port = true", "port = True from file"),
        ("port = 1.5", "port = 1.5 from file"),
        ("host = 5", "host = 5 from file"),
        ("auto_create_topics = 1", "auto_create_topics = 1 from file"),
        ("port = ", "is not valid TOML"),
        ("[server]\nport = 1", "unknown setting 'server'"),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    path = toml(tmp_path, text)
    with pytest.raises(SettingsError) as error:
        load(path, {}, {})
    assert says in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read the settings file .*gone.toml: No such file"):
        load(tmp_path / "gone.toml", {}, {})


# What is shown.


def test_keys_of_an_object_store_are_never_shown() -> None:
    given = "aws_region=eu,aws_secret_access_key=hidden,AWS_SESSION_TOKEN=hidden,aws_allow_http=true"
    loaded = load(None, {"HEADRACE_LAKE_STORAGE": given}, {})
    assert loaded.settings.lake_storage == given
    row = next(row for row in loaded.rows() if row.name == "lake_storage")
    assert row.value == "aws_region=eu,aws_secret_access_key=***,AWS_SESSION_TOKEN=***,aws_allow_http=true"


def test_a_password_is_never_shown() -> None:
    loaded = load(None, {"HEADRACE_REDIS": "redis://user:secret@example:6379/1"}, {})
    assert loaded.settings.redis == "redis://user:secret@example:6379/1"
    row = next(row for row in loaded.rows() if row.name == "redis")
    assert row.value == "redis://user:***@example:6379/1"
    with pytest.raises(SettingsError) as error:
        load(None, {"HEADRACE_REDIS": "http://:secret@example"}, {})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("unix:///tmp/s", "unix:///tmp/s"),
        ("rediss://:pw@[::1]:6380", "rediss://:***@[::1]:6380"),
        ("redis://[::1", "redis://[::1"),
        ("redis://u:se@cr/e?t#@h:1", "redis://u:***@h:1"),
        ("redis+cluster://u:pw@a:1,b:2", "redis+cluster://u:***@a:1,b:2"),
        ("redis+sentinel://a,b/main?sentinel_password=pw", "redis+sentinel://a,b/main?sentinel_password=***"),
        ("redis://h?username=u&password=pw&db=1", "redis://h?username=u&password=***&db=1"),
    ],
)
def test_urls_are_shown_without_their_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka.example:9092", ("kafka.example", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("::1:9092", None),
        ("host:0", None),
        ("host:70000", None),
        (":9092", None),
        ("a b:9092", None),
    ],
)
def test_addresses_are_host_and_port(text: str, address: tuple[str, int] | None) -> None:
    assert split_address(text) == address


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_what_is_shown_can_be_read_again(amount: int) -> None:
    assert parse_size(show_size(amount)) == amount
    assert parse_time(show_time(amount)) == amount


@pytest.mark.parametrize("text", ["", "MiB", "1.5", "-5MiB", "1.0001KiB", "1e3", "ten", "1 2", "٣"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    assert parse_size(text) is None
    assert parse_time(text) is None


# Flags.


def run(*arguments: str, names: tuple[str, ...] = ()) -> tuple[Any, Loaded | None]:
    seen: list[Loaded] = []

    @click.command()
    @setting_options(*names)
    @click.option("--times", default=1)
    def command(loaded: Loaded, times: int) -> None:
        assert times == 1
        seen.append(loaded)

    result = CliRunner().invoke(command, arguments)
    return result, seen[0] if seen else None


def test_every_setting_has_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOST", "env")
    arguments = ["--port", "1001", "--no-auto-create-topics", "--tail-cache-bytes", "1MiB", "--data-dir", "d"]
    result, loaded = run(*arguments)
    assert result.exit_code == 0, result.output
    assert loaded is not None
    settings = loaded.settings
    assert (settings.port, settings.host, settings.tail_cache_bytes) == (1001, "env", 1 << 20)
    assert not settings.auto_create_topics
    assert settings.data_dir == Path("d")
    assert loaded.sources["auto_create_topics"] == "flag --auto-create-topics"
    text = run("--help")[0].output
    assert all(setting.flag in text for setting in SETTINGS.values())


def test_a_command_has_only_the_flags_that_it_names() -> None:
    assert run("--port", "1", names=("port",))[0].exit_code == 0
    assert run("--host", "x", names=("port",))[0].exit_code == 2


def test_a_bad_flag_ends_the_command_with_its_sentence() -> None:
    result, loaded = run("--port", "x")
    assert result.exit_code == 2
    assert loaded is None
    assert "port = 'x' from flag --port must be a whole number, from 0 to 65535" in result.output


def test_a_file_is_given_by_flag(tmp_path: Path) -> None:
    _, loaded = run("--config", str(toml(tmp_path, "port = 7")))
    assert loaded is not None
    assert loaded.settings.port == 7
