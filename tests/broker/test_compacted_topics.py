"""Topics that are not compacted cost compaction nothing: their configs are read when they change, not in each round."""

from __future__ import annotations

from unittest.mock import Mock

from headrace.broker.access import Access
from headrace.broker.background import ChosenTopics
from headrace.broker.broker import Broker


async def test_configs_are_read_again_only_after_a_change() -> None:
    topics = {"plain": False, "table": True}
    broker = Mock(spec=Broker, store=Mock())
    broker.store.policies.revision = 1
    broker.policy.side_effect = lambda topic: Mock(compacts=topics[topic])
    access = Mock(spec=Access, topics_version=1, caller=Mock(organisation="default"))
    access.topics.side_effect = lambda _: list(topics)
    compacted = ChosenTopics(broker, lambda policy: policy.compacts)

    async def found() -> list[str]:
        return [str(topic) for topic in await compacted.of(access)]

    for _ in range(3):
        assert await found() == ["table"]
    assert broker.policy.call_count == len(topics)
    topics["plain"] = True
    access.topics_version = 2
    assert await found() == ["plain", "table"]
    topics["table"] = False
    broker.store.policies.revision = 2
    assert await found() == ["plain"]
