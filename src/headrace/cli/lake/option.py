"""Options that all commands of `headrace lake` share, and their messages when a table or Spark is missing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.names import ORGANISATION

Result = TypeVar("Result")

MISSING_EXTRA = "the lake needs packages that are not installed: pip install 'headrace[lake]'"


def place_option(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds `--lake`, `--storage` and `--org`, passed as `root`; the lake's errors become one sentence each."""

    @click.option(
        "--lake", "place", metavar="PLACE", required=True, callback=_read_place,
        help="Location of the tables: a folder, or s3://...",
    )  # fmt: skip
    @click.option(
        "--storage",
        metavar="KEY=VALUE",
        multiple=True,
        help="An object store option, such as aws_endpoint_url. May be repeated.  [default: from the environment]",
    )
    @click.option(
        "--org", "organisation", metavar="NAME", callback=_read_organisation,
        help="Organisation that owns the tables.  [default: that of the login]",
    )  # fmt: skip
    @functools.wraps(command)
    def with_place(
        *args: object, place: str, storage: tuple[str, ...], organisation: str | None, **given: object
    ) -> Result:
        with sentences():
            from headrace.cli.lake.organisation import login_organisation
            from headrace.lake.storage.place import place_of
            from headrace.lake.table.names import folder_of_organisation

            root = place_of(place, storage_options(storage))
            owner = organisation or login_organisation(given.get("client_config"), given.get("settings"))
            if owner != DEFAULT_ORGANISATION:
                root = root / folder_of_organisation(owner)
            return command(*args, root=root, **given)

    return with_place


def _read_organisation(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    if given is not None and not ORGANISATION.fullmatch(given):
        raise click.BadParameter(f"{given!r} is not a name of 1 to 63 of a-z, 0-9 and -")
    return given


def storage_options(given: Sequence[str], flag: str = "--storage") -> dict[str, str]:
    """Parses `KEY=VALUE` object store options; a key may have the prefix `storage.`."""
    pairs = [pair.partition("=") for pair in given]
    for name, equals, _ in pairs:
        if not (name.removeprefix("storage.") and equals):
            raise click.UsageError(f"{flag} {name!r} is not KEY=VALUE")
    return {name.removeprefix("storage."): value for name, _, value in pairs}


def lake_option(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds `--topics` as well."""

    topics = click.option("--topics", metavar="A,B", callback=_read_topics, help="Only these topics.")
    return place_option(topics(command))


def _read_place(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    # An empty path would mean the current folder.
    if not given.strip():
        raise click.BadParameter("it names no place")
    return given


def _read_topics(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[str, ...]:
    """None if the option is missing. An empty value, as from a script's unset variable, does not mean all topics."""
    if given is None:
        return ()
    if not (names := tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))):
        raise click.BadParameter("it names no topic")
    return names


class LeftOut:
    """Tables a command could not process: it does the others first, then reports these and exits with 1."""

    def __init__(self) -> None:
        self._sentences: list[str] = []

    def __call__(self, name: str, error: Exception) -> None:
        from headrace.lake.storage.place import reason
        from headrace.lake.table.snapshot import TableRefused

        # The message already names the table.
        where = "" if isinstance(error, TableRefused) else f"{name}: "
        self._sentences.append(where + reason(error).rstrip("."))

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """An error inside concerns one table only; the command continues with the others."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (ValueError, OSError, DeltaError) as error:
            if isinstance(error, ConnectionError):
                raise
            self(name, error)

    def end(self) -> None:
        if self._sentences:
            raise click.ClickException("; ".join(self._sentences))


@contextlib.contextmanager
def sentences() -> Iterator[None]:
    """Turns errors of tables and Spark into one sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {
            "pyspark",
            "pyarrow",
            "deltalake",
            "numba",
            "numpy",
            "fastavro",
        }:
            raise
        raise click.ClickException(f"{MISSING_EXTRA} (no {error.name})") from None
    except Exception as error:
        from deltalake.exceptions import DeltaError

        from headrace.lake.session import NoJava
        from headrace.lake.storage.place import reason

        # ValueError: a table or location is refused. OSError: a file is missing, or the object store is unavailable.
        if not isinstance(error, NoJava | ValueError | OSError | DeltaError) or isinstance(error, ConnectionError):
            raise
        raise click.ClickException(reason(error).rstrip(".")) from None
