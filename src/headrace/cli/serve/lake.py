"""The lake's reader: its settings are checked before anything starts, then each node opens its own."""

from __future__ import annotations

import click

from headrace.cli.lake.option import storage_options
from headrace.cli.settings.table import Settings
from headrace.cold_log import ColdLog
from headrace.lake.cold.log import ColdUnusable, open_cold_log


def open_lake(settings: Settings, cluster_id: str) -> ColdLog | None:
    """The reader of the lake, or None without a lake. Its process starts with the first request."""
    options = storage_options([pair for pair in settings.lake_storage.split(",") if pair], "--lake-storage")
    if not settings.lake:
        return None
    try:
        return open_cold_log(
            settings.lake,
            options,
            cluster_id,
            patience_s=settings.cold_timeout_ms / 1000,
            cpu_percent=settings.cold_cpu_percent,
        )
    except ColdUnusable as error:
        raise click.UsageError(f"--lake: {error}") from None
