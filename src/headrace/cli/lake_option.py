"""What every command of `headrace lake` takes, and what it says when a table or Spark is not there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

Result = TypeVar("Result")

MISSING_EXTRA = "the lake needs packages that are not installed: pip install 'headrace[lake]'"


def place_option(command: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command `--lake` and `--storage`, as `root`; what the lake refuses becomes a sentence."""

    @click.option("--lake", "place", metavar="PLACE", required=True, help="Where the tables lie: a folder, or s3://...")
    @click.option(
        "--storage",
        metavar="KEY=VALUE",
        multiple=True,
        help="An option of the object store, such as aws_endpoint_url; may be repeated.  [the environment]",
    )
    @functools.wraps(command)
    def with_place(*args: object, place: str, storage: tuple[str, ...], **given: object) -> Result:
        with sentences():
            from headrace.lake.place import place_of

            return command(*args, root=place_of(place, storage_options(storage)), **given)

    return with_place


def storage_options(given: Sequence[str], flag: str = "--storage") -> dict[str, str]:
    """`KEY=VALUE`s as options of an object store; a key may have the prefix `storage.`."""
    pairs = [pair.partition("=") for pair in given]
    for name, equals, _ in pairs:
        if not (name.removeprefix("storage.") and equals):
            raise click.UsageError(f"{flag} {name!r} is not KEY=VALUE")
    return {name.removeprefix("storage."): value for name, _, value in pairs}


def lake_option(command: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command `--lake`, and `--topics`; what the lake refuses becomes a sentence."""

    @place_option
    @click.option("--topics", "names", metavar="A,B", default="", help="These topics, by name.")
    @functools.wraps(command)
    def with_lake(*args: object, names: str, **given: object) -> Result:
        topics = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
        return command(*args, topics=topics, **given)

    return with_lake


@contextlib.contextmanager
def sentences() -> Iterator[None]:
    """What goes wrong with tables or Spark, said in one sentence."""
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

        from headrace.lake.place import reason
        from headrace.lake.session import NoJava

        # ValueError: a table or a place that is refused. OSError: a file that is not where it must be, or a store away.
        if not isinstance(error, NoJava | ValueError | OSError | DeltaError) or isinstance(error, ConnectionError):
            raise
        raise click.ClickException(reason(error).rstrip(".")) from None
