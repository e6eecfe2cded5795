"""Who leads instead, in the response to a Produce or Fetch that came to the wrong node (KIP-951).

Named as Kafka does: the leader and its epoch with the partition's error, and once per response where the client reaches
that node by its own listener. Only topics that the caller has the request's right to get here. A move does not raise
the epoch: librdkafka goes to the named leader without asking for metadata, Java's client and franz-go insist on a
higher epoch, and ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import fetch, produce

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.cluster.nodes.endpoints import Node

PRODUCE_SINCE: Final = 10
FETCH_SINCE: Final = 16
_FETCH_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Leader = TypeVar("Leader", produce.LeaderIdAndEpoch, fetch.LeaderIdAndEpoch)
Place = TypeVar("Place", produce.NodeEndpoint, fetch.NodeEndpoint)


class CurrentLeaders:
    """The leaders that one response names."""

    __slots__ = ("_call", "_nodes")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._nodes: dict[int, Node] = {}

    def name_in_produce(self, topic: Topic, answer: produce.PartitionProduceResponse) -> None:
        """Adds the leader to a refused batch, if that is why it was refused."""
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self._call.version >= PRODUCE_SINCE:
            answer.current_leader = self._leader(topic, answer.index, produce.LeaderIdAndEpoch)

    def name_in_fetch(self, topic: Topic, data: fetch.PartitionData) -> None:
        """Adds the leader to a partition that cannot be read here, if that is why."""
        if data.error_code in _FETCH_ERRORS and self._call.version >= FETCH_SINCE:
            data.current_leader = self._leader(topic, data.partition_index, fetch.LeaderIdAndEpoch)

    def endpoints(self, kind: type[Place]) -> list[Place]:
        """Where the caller reaches them; a node that does not have its listener is left out."""
        call = self._call
        return [
            kind(node.id, at.host, at.port, node.rack or None)
            for node in self._nodes.values()
            if (at := call.endpoint(node))
        ]

    def _leader(self, topic: Topic, number: int, kind: type[Leader]) -> Leader:
        """Nobody while this node does not know: it was stopped for so long that others may lead."""
        nodes = self._call.broker.store.nodes
        if nodes.has_overslept:
            return kind()
        node = nodes.leader(topic, number)
        self._nodes[node.id] = node
        known = self._call.known_partition(topic, number)
        return kind(node.id, max(topic.epochs.get(number, 0), known.leader_epoch if known is not None else 0))
