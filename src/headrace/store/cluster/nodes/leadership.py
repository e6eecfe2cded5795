"""Which live node leads a partition or owns a group: the same answer on every node, from ids alone. Pure.

Rendezvous hashing: each partition or group falls into one of 16,384 buckets, and each bucket ranks all nodes by a hash.
When a node dies, its share goes to the next nodes in rank, and returns with it; nothing else moves. With few partitions
that alone would be uneven, so a topic's partitions are assigned in order, each to its highest-ranked node that is still
below its share of this topic, ceil(1.25 x mean). Other topics play no part: a new topic moves no leaders.

Everything is computed lazily in small pieces: the ranks of 8 buckets, a block of one topic's partitions. With 100
nodes, a hash per partition and node would block the event loop for 8 s at 100,000 partitions.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.cluster.nodes.endpoints import Node

_BUCKETS: Final = 16_384
_BUCKETS_AT_ONCE: Final = 8
"""As many as one digest has words for."""
_STEP: Final = 10_139
"""Odd: so many buckets lie between two partitions that follow each other, and 16,384 in a row all have another one."""
_BLOCK: Final = 1_024
_BLOCK_PER_NODE: Final = 8
"""A block has at least so many partitions for each node: then the rounded down bound is above the mean."""
_BLOCKS_MOST: Final = 65_536
"""About 20 MB: topics that come and go would leave theirs behind for ever."""
_SHARE: Final = (5, 4)
"""The bound, 1.25 times the mean, as a fraction: no rounding that differs from machine to machine."""


class Leadership:
    """The answers for one list of nodes, which has to be sorted by id."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)
        self._by_id = {node.id: node for node in nodes}
        self._alone = [[node] for node in nodes]
        self._have_racks = any(node.rack for node in nodes)
        self._ranks: dict[int, Sequence[int]] = {}
        """Bucket -> places of all nodes, the first to lead first."""
        self._blocks: dict[tuple[str, int, int], array[int]] = {}
        """Topic, number of its partitions, block -> place of the leader of each partition in it."""

    def owner(self, what: bytes) -> Node:
        """The owner of anything that is not a partition, such as a group."""
        if len(self._nodes) == 1:
            return self._nodes[0]
        return self._nodes[self._ranked(_bucket_of(what))[0]]

    def leader(self, topic: Topic, partition: int) -> Node:
        """The node that leads a partition."""
        if len(self._nodes) == 1:
            return self._nodes[0]
        if topic.assignments and (chosen := self._chosen(topic, partition)):
            return chosen[0]
        return self._nodes[self._leader(topic, partition)]

    def replicas(self, topic: Topic, partition: int) -> list[Node]:
        """The leader and its successors: as many nodes as the topic has replicas, spread over the racks."""
        if len(self._nodes) == 1:
            return self._nodes
        if topic.assignments and (chosen := self._chosen(topic, partition)):
            return chosen
        leader = self._leader(topic, partition)
        if topic.replication_factor == 1:
            return self._alone[leader]
        ranked = self._ranked((_bucket_of(topic.uuid) + partition * _STEP) % _BUCKETS)
        followers = [self._nodes[place] for place in ranked if place != leader]
        return self._spread(self._nodes[leader], followers, topic.replication_factor)

    def _chosen(self, topic: Topic, partition: int) -> list[Node]:
        """The live nodes among those assigned by hand; if there are none, hashes decide as for other topics."""
        return [self._by_id[id] for id in topic.assigned(partition) if id in self._by_id]

    def _spread(self, leader: Node, followers: list[Node], count: int) -> list[Node]:
        """The first ones in rank, but none on a rack that has more than another one on which there is a node left."""
        if not self._have_racks:
            return [leader, *followers[: count - 1]]
        chosen, used = [leader], Counter({leader.rack: 1})
        while followers and len(chosen) < count:
            following = min(followers, key=lambda node: used[node.rack])  # the first of those in rank
            followers.remove(following)
            chosen.append(following)
            used[following.rack] += 1
        return chosen

    def _leader(self, topic: Topic, partition: int) -> int:
        if not 0 <= partition < topic.partitions:  # it does not have that one (yet)
            return self._ranked((_bucket_of(topic.uuid) + partition * _STEP) % _BUCKETS)[0]
        size = max(_BLOCK, _BLOCK_PER_NODE * len(self._nodes))
        number, place = divmod(partition, size)
        key = topic.id, topic.partitions, number
        block = self._blocks.get(key)
        if block is None:
            if len(self._blocks) >= _BLOCKS_MOST:
                self._blocks.clear()
            first, last = number * size, min((number + 1) * size, topic.partitions)
            block = self._blocks[key] = self._deal(topic.uuid, range(first, last), is_full=last - first == size)
        return block[place]

    def _deal(self, uuid: bytes, partitions: range, *, is_full: bool) -> array[int]:
        """The leader of each partition in a block. Full blocks round down, so the sum is within the topic's bound."""
        nodes = len(self._nodes)
        times, by = _SHARE[0] * len(partitions), _SHARE[1] * nodes
        most = times // by if is_full else -(-times // by)
        loads, leaders, first = [0] * nodes, array("i"), _bucket_of(uuid)
        for partition in partitions:
            for place in self._ranked((first + partition * _STEP) % _BUCKETS):
                if loads[place] < most:
                    loads[place] += 1
                    leaders.append(place)
                    break
        return leaders

    def _ranked(self, bucket: int) -> Sequence[int]:
        ranked = self._ranks.get(bucket)
        if ranked is None:
            first = bucket - bucket % _BUCKETS_AT_ONCE
            rows = [_words(b"%d %d" % (node.id, first)) for node in self._nodes]
            places = range(len(rows))
            for at, hashes in enumerate(zip(*rows, strict=True)):
                self._ranks[first + at] = array("H", sorted(places, key=hashes.__getitem__, reverse=True))
            ranked = self._ranks[bucket]
        return ranked


def _words(what: bytes) -> list[int]:
    digest = hashlib.blake2b(what, digest_size=8 * _BUCKETS_AT_ONCE).digest()
    return [int.from_bytes(digest[at : at + 8], "big") for at in range(0, len(digest), 8)]


def _bucket_of(what: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(what, digest_size=8).digest(), "big") % _BUCKETS
