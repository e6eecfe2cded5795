"""What all nodes share is followed together, in one command for all hashes of a slot."""

from __future__ import annotations

import msgspec
import pytest

from headrace.store.cluster.configs import of_group
from headrace.store.cluster.shared_hash import VERSION, refresh_all
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.produced import until
from tests.store.servers import Valkey


async def test_what_another_node_changed_in_any_table_is_taken_in(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    await store.acls.put("default", "one", b"row")
    await store.quotas.put("default", "two", b"row")
    await store.default.configs.replace(of_group("readers"), {"share.isolation.level": "read_committed"})
    await refresh_all([other.acls, other.users, other.quotas, *other.default.shared])
    assert (other.acls.get("default", "one"), other.quotas.get("default", "two")) == (b"row", b"row")
    assert other.default.configs.groups() == ["readers"]


async def test_a_table_that_cannot_be_read_does_not_keep_the_others_back(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    other = await open_store()
    valkey.ask("HSET", other.users.key, "default/broken", "no JSON")
    valkey.ask("HINCRBY", other.users.key, VERSION, 1)
    await store.acls.put("default", "one", b"row")
    with pytest.raises(msgspec.DecodeError):
        await refresh_all([other.users, other.acls])
    assert other.acls.get("default", "one") == b"row"


async def test_other_nodes_rows_are_followed_by_themselves(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    await store.acls.put("default", "one", b"row")
    await until(lambda: other.acls.get("default", "one") == b"row")
