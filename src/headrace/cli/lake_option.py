"""What every command of `headrace lake` takes, and what it says when a table or Spark is not there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import click

Result = TypeVar("Result")

MISSING_EXTRA = "the lake needs packages that are not installed: pip install 'headrace[lake]'"


def place_option(command: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command `--lake`, as `root`; what the lake refuses becomes a sentence."""

    @click.option("--lake", "place", metavar="PATH", required=True, help="The folder that the tables lie in.")
    @functools.wraps(command)
    def with_place(*args: object, place: str, **given: object) -> Result:
        with sentences():
            from headrace.lake.folders import local_lake

            return command(*args, root=local_lake(place), **given)

    return with_place


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
        if (error.name or "").partition(".")[0] not in {"pyspark", "pyarrow", "deltalake", "numba", "numpy"}:
            raise
        raise click.ClickException(f"{MISSING_EXTRA} (no {error.name})") from None
    except Exception as error:
        from headrace.lake.session import NoJava

        # ValueError: a table or a path that is refused. OSError: a file that is not where it must be.
        if not isinstance(error, NoJava | ValueError | OSError) or isinstance(error, ConnectionError):
            raise
        raise click.ClickException(str(error).rstrip(".")) from None
