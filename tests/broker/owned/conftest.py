"""The store's own fixtures: a real server, a proxy that can hold a command back, stores as nodes open them."""

from tests.store.conftest import clock, open_store, proxy, pytest_asyncio_loop_factories, start_valkey, store, valkey

__all__ = ["clock", "open_store", "proxy", "pytest_asyncio_loop_factories", "start_valkey", "store", "valkey"]
