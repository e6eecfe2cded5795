"""What the model leaves out: queues, uneven places, and a node or a primary that dies. `python -m bench.simulation`.

The model divides a load by what a core does. Here batches arrive at random, wait for the one core of their partition's
leader, and then for that of its shard. Leaders and slots come from the broker's own code, so partitions lie as unevenly
as they would. Costs are the model's; each hop over the network takes a quarter of a millisecond. When something dies,
its batches wait until others have taken over, and then come all at once.

One seed, so that everybody gets the same table; it is written into docs/scale.md together with the model's.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench import model
from bench.model import Cost, Load
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import kafka_uuid
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.cluster.nodes.leadership import Leadership
from headrace.store.keys import Keys
from headrace.store.redis.topology import SLOTS, slot_number

_HEAD: Final = (
    "| load | nodes, primaries | partitions | busiest node, primary | an append, p50, p99 "
    "| full at | a node dies | a primary dies |\n"
)
_SEED: Final = 1
_HOP_S: Final = 0.00025
_SMALL_MB, _LARGE_MB = 0.016, 1.0
_PARTITIONS_PER_NODE: Final = (4, 40)
_DIES_AT_S, _LENGTH_S = 1.0, 20.0
_TAKEOVER_S: Final = 1.5
"""From the death of a node until its partitions are served again (report.md, takeover, the slower client)."""
_ELECTION_S: Final = 3.0
"""The same of a primary: a `cluster-node-timeout` of 2 s, and a second."""
_WELL_S: Final = 0.1
"""Slower appends count as late."""

_Floats = NDArray[np.float64]
_Places = NDArray[np.int64]


class Places(NamedTuple):
    """Where each partition is."""

    leaders: _Places
    successors: _Places
    """Its leader once the first node is gone."""
    shards: _Places


class Calm(NamedTuple):
    """While nothing dies."""

    node: float
    primary: float
    """Of a core, the busiest one."""
    p50_ms: float
    p99_ms: float

    @property
    def full_at(self) -> float:
        """The multiple of the load at which something has no time left."""
        return 1 / max(self.node, self.primary)


class Cluster:
    """A topic on nodes and primaries, and the batches that producers send to it."""

    def __init__(self, load: Load, nodes: int, primaries: int, partitions: int) -> None:
        batch_mb = _SMALL_MB if "16 KB" in load.name else _LARGE_MB
        dice = np.random.default_rng(_SEED)
        self._places = places_of(nodes, primaries, partitions)
        self._node_s, self._store_s = load.cost.broker_ms * batch_mb / 1000, load.cost.store_ms * batch_mb / 1000
        self._sent = np.sort(dice.uniform(0, _LENGTH_S, round(load.mb_s / batch_mb * _LENGTH_S)))
        self._partitions = dice.integers(partitions, size=len(self._sent))

    def calm(self) -> Calm:
        leaders, shards = (places[self._partitions] for places in (self._places.leaders, self._places.shards))
        took = self._acknowledged(self._sent, leaders, shards) - self._sent
        p50, p99 = np.percentile(took, [50, 99]) * 1000
        node, primary = (
            np.bincount(which).max() * cost_s / _LENGTH_S
            for which, cost_s in ((leaders, self._node_s), (shards, self._store_s))
        )
        return Calm(float(node), float(primary), float(p50), float(p99))

    def late_after_a_node_died(self) -> float:
        """For how many seconds after that some appends are late."""
        leaders = self._places.leaders[self._partitions]
        arrived = self._held_back(leaders == 0, _TAKEOVER_S)
        is_over = arrived >= _DIES_AT_S + _TAKEOVER_S
        return self._late(arrived, np.where(is_over, self._places.successors[self._partitions], leaders))

    def late_after_a_primary_died(self) -> float:
        shards = self._places.shards[self._partitions]
        return self._late(self._held_back(shards == 0, _ELECTION_S), self._places.leaders[self._partitions])

    def _held_back(self, is_concerned: NDArray[np.bool_], away_s: float) -> _Floats:
        """When batches arrive, if some can only do so once others have taken over."""
        back_s = _DIES_AT_S + away_s
        return np.where(is_concerned & (self._sent >= _DIES_AT_S) & (self._sent < back_s), back_s, self._sent)

    def _late(self, arrived: _Floats, leaders: _Places) -> float:
        done = self._acknowledged(arrived, leaders, self._places.shards[self._partitions])
        return float(done[done - self._sent > _WELL_S].max(initial=_DIES_AT_S) - _DIES_AT_S)

    def _acknowledged(self, arrived: _Floats, leaders: _Places, shards: _Places) -> _Floats:
        handed_on = served(arrived + _HOP_S, leaders, self._node_s)
        return served(handed_on + _HOP_S, shards, self._store_s) + 2 * _HOP_S


def places_of(nodes: int, primaries: int, partitions: int) -> Places:
    """As the broker places a topic with an id of its own."""
    topic = Topic("orders", kafka_uuid(random.Random(_SEED).randbytes(16)), partitions)
    live = [node_at(number, "127.0.0.1", 9092) for number in range(nodes)]
    numbers = range(partitions)
    before, after = Leadership(live), Leadership(live[1:] or live)
    slots = (slot_number(topic.keys(Keys(), number).log) for number in numbers)
    return Places(
        np.array([before.leader(topic, number).id for number in numbers]),
        np.array([after.leader(topic, number).id for number in numbers]),
        np.array([slot * primaries // SLOTS for slot in slots]),
    )


def served(arrived: _Floats, where: _Places, cost_s: float) -> _Floats:
    """When each is done, at cores that do one thing at a time, in the order in which they come."""
    done = np.empty_like(arrived)
    for core in range(where.max() + 1):
        mine = np.flatnonzero(where == core)
        mine = mine[np.argsort(arrived[mine], kind="stable")]
        before_s = cost_s * np.arange(len(mine))
        # The core has been busy since the arrival that made it so: the one which, with all behind it, ends last.
        done[mine] = np.maximum.accumulate(arrived[mine] - before_s) + before_s + cost_s
    return done


def table(report: str) -> str:
    """What the simulation says to the model's answers."""
    rows, seen = [_HEAD.rstrip(), "|---" * 8 + "|"], set[Cost]()
    for load in model.loads(report):
        if load.cost in seen:  # the same bytes at the same price
            continue
        seen.add(load.cost)
        found = model.needs(load)
        rows += [_row(load, found.nodes, found.primaries_for_cpu, each * found.nodes) for each in _PARTITIONS_PER_NODE]
    return "\n".join(rows)


def with_table(page: str, report: str) -> str:
    """The page with the table that this report gives."""
    return model.replaced(page, _HEAD, table(report))


def _row(load: Load, nodes: int, primaries: int, partitions: int) -> str:
    cluster = Cluster(load, nodes, primaries, partitions)
    calm = cluster.calm()
    late = " | ".join(map(_seconds, (cluster.late_after_a_node_died(), cluster.late_after_a_primary_died())))
    return (
        f"| {load.name} | {nodes}, {primaries} | {partitions} | {calm.node:.0%}, {calm.primary:.0%} "
        f"| {calm.p50_ms:.1f}, {calm.p99_ms:.1f} ms | {calm.full_at:.1f} of it | {late} |"
    )


def _seconds(late_s: float) -> str:
    still = _LENGTH_S - _DIES_AT_S
    return f"late for {late_s:.1f} s" if late_s < still else f"still late after {still:.0f} s"


if __name__ == "__main__":
    print(table(model.REPORT.read_text()))
