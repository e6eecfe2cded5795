"""What is said of sentinels that cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.embedded.trial import TrialServer
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.errors import StoreAway
from headrace.store.redis.sentinel import Sentinels
from tests.sentinels import SENTINEL
from tests.stores import of_one_server

pytestmark = of_one_server


@pytest.mark.parametrize(
    ("login", "words"),
    [("", "NOAUTH"), ("?sentinel_password=wrong", "WRONGPASS"), ("?sentinel_password=stone", "know no primary 'main'")],
)
async def test_a_login_that_sentinels_refuse_is_not_taken_for_their_death(
    login: str, words: str, tmp_path: Path
) -> None:
    sentinel = TrialServer(tmp_path, {}, *SENTINEL)
    (tmp_path / SENTINEL[0]).touch()
    address = parse_address(f"redis+sentinel://{sentinel!r}/main{login}")
    sentinels = Sentinels(address, StoreOptions(), lambda _: None)
    try:
        sentinel.start()
        sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">stone")
        await sentinels.start()
        with pytest.raises(StoreAway, match=words):
            await sentinels.primary()
    finally:
        await sentinels.close()
        sentinel.kill()
