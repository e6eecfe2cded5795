"""Makes `format("headrace")` known: Spark looks for `DefaultSource` in every package whose name starts so."""

from headrace.lake.source.data_source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
