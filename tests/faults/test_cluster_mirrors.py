"""Mirrors of groups (`kafka:<group>` in Redis) on a cluster: the servers of a group and of a partition fail alone.

That mirrors follow under load, through failovers and kills, is checked with everything else (`ClusterLoad.check`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.embedded.trial import TrialServer
from headrace.store.keys import Keys
from tests.broker.members import NONE, commit
from tests.broker.peers import batch_of, connect, create_topic, produce
from tests.broker_process import wait_until
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker

PARTITIONS = 12


def stream_of(server: TrialServer, topic: str) -> dict[int, str]:
    """The partitions that a server has, and their streams."""
    keys = [key.decode() for ending in ("log", "stream") for key in server.ask("KEYS", f"*{{{topic}:*}}:{ending}")]
    return {int(key.split("{")[1].split(":")[1].rstrip("}")): key for key in keys}


def mirror(server: TrialServer, stream: str, group: str) -> tuple[bytes, int] | None:
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in server.ask("XINFO", "GROUPS", stream)]
    found = [row for row in rows if row[b"name"] == b"kafka:%b" % group.encode()]
    return (found[0][b"last-delivered-id"], found[0][b"lag"]) if found else None


@pytest.mark.parametrize("format", ["log", "stream"])
def test_a_mirror_follows_a_commit_that_was_made_while_the_server_of_its_partition_was_away(
    tmp_path: Path, start_broker: StartBroker, topic: str, group: str, format: str
) -> None:
    with running(ClusterOfServers(tmp_path / "servers", replicas=0, durability="always")) as servers:
        broker = start_broker(redis=servers.url, store_wait_ms=200, store_timeout_ms=1_000)
        with connect(broker) as connection:
            create_topic(connection, topic, PARTITIONS, {"headrace.format": format})
            answers = produce(connection, topic, {number: batch_of(b"1", b"2") for number in range(PARTITIONS)})
            ends = {number: answer.base_offset + 2 for number, answer in answers.items()}
            of_group = servers.owner_of_key(Keys().group_offsets(group))
            away = next(one for one in servers.servers if one is not of_group)
            streams = stream_of(away, topic)
            assert commit(connection, group, topic, dict.fromkeys(streams, 0)) == dict.fromkeys(streams, NONE)
            wait_until(lambda: all(mirror(away, key, group) for key in streams.values()), "there are no mirrors")
            away.kill()
            committed = {number: ends[number] for number in streams}
            assert commit(connection, group, topic, committed) == dict.fromkeys(streams, NONE)
            away.start()
            servers.wait_whole()
            wait_until(
                lambda: all((mirror(away, key, group) or (b"", -1))[1] == 0 for key in streams.values()),
                "the mirrors do not follow",
                60,
            )
