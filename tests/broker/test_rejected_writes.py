"""A store that rejects all writes for a while: one log line when that begins, one when it is over."""

from __future__ import annotations

from functools import partial

import redis

from headrace.wire.errors import ErrorCode
from tests.broker.members import COORDINATOR_NOT_AVAILABLE, NONE, NOT_COORDINATOR, commit
from tests.broker.peers import batch_of, connect, create_topic, produce
from tests.broker_process import wait_until
from tests.conftest import StartBroker, StartRedis

ROUNDS = 4
BEGIN_AND_END = (
    ("redis rejects appends", "redis accepts appends again"),
    (
        "the store rejects writes of groups and transactional ids",
        "the store accepts writes of groups and transactional ids again",
    ),
    ("this node's lease expired; claiming it again", "this node has its lease"),
)


def scripts_run(client: redis.Redis) -> int:
    """How many scripts the broker has run: every renewal of the lease is one, four in a second."""
    calls: int = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    return calls


def renews(client: redis.Redis, seen: int) -> bool:
    return scripts_run(client) > seen + 4


def test_it_is_logged_once_however_many_requests_and_renewals_are_rejected(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, group: str
) -> None:
    server = start_redis()
    broker = start_broker(redis=server.url, node_lease_ms=1_000)
    with connect(broker) as connection, redis.Redis(port=server.port) as client:
        create_topic(connection, topic, 1)

        def commits() -> int:
            return commit(connection, group, topic, {0: 7})[0]

        def produces() -> int:
            return produce(connection, topic, {0: batch_of(b"value")})[0].error_code

        assert (commits(), produces()) == (NONE, NONE)
        client.config_set("min-replicas-to-write", 1)
        for _ in range(ROUNDS):
            seen = scripts_run(client)
            assert commits() in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
            assert produces() == ErrorCode.NOT_ENOUGH_REPLICAS
            wait_until(partial(renews, client, seen), "the lease is not renewed")
        wait_until(lambda: all(begin in broker.log for begin, _ in BEGIN_AND_END), "not all is logged")
        client.config_set("min-replicas-to-write", 0)

        def is_over() -> bool:
            return (commits(), produces()) == (NONE, NONE) and all(end in broker.log for _, end in BEGIN_AND_END)

        wait_until(is_over, "it is not said to be over")
    for begin, end in BEGIN_AND_END:
        assert (broker.log.count(begin), broker.log.count(end)) == (1, 1), begin
