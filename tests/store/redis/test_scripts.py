"""Scripts by their digest, and by their source where the server does not know them."""

from __future__ import annotations

from headrace.store.redis.scripts import Scripts
from headrace.store.store import Store


async def test_each_set_of_scripts_sends_its_own_sources(store: Store) -> None:
    scripts = Scripts(store.link, {"save_start": "return 'ours'", "echo": "return ARGV[1]"})
    assert await scripts.run("echo", [], ["said"]) == b"said"
    assert await scripts.send("echo", [], ["said"], source=True) == b"said"
    assert await scripts.send("save_start", [], [], source=True) == b"ours"
    assert await scripts.send("save_start", [], []) == b"ours"
