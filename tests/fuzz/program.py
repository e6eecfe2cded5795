"""Random programs for two brokers: what clients do, without anything that only one broker knows.

A program names producers, sessions and members by numbers, and offsets and sequences by what came before. Whoever
performs it (`performer.py`) puts in what its broker gave out, so the same program can be compared on two brokers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from headrace.wire.apis import APIS
from headrace.wire.compression import Compression

PARTITIONS = {"plain": 3, "stamped": 1, "small": 1, "stream": 2, "stream-stamped": 1, "compacted": 1, "zipped": 1,
              "unreadable": 1, "unwritable": 1, "short-lived": 1}  # fmt: skip
CONFIGS = {
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "600"},
    "stream": {"headrace.format": "stream"},
    "stream-stamped": {"headrace.format": "stream", "message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"},
    "zipped": {"compression.type": "gzip"},
}
MISSING, INTERNAL = "missing", "__consumer_offsets"
IDEMPOTENT, TRANSACTIONAL = (0, 1), (2, 3)
CONNECTIONS, SESSIONS, GROUPS, MEMBERS = 3, 2, 2, 2
FORBIDDEN_GROUP = 9

_USUAL = ["plain"] * 8 + ["stamped", "stream", "stream"] * 2
_ANY = [*PARTITIONS, MISSING, INTERNAL]
_DAMAGES = ["crc", "magic", "old-magic", "cut", "longer", "control", "count", "null", "empty", "two", "codec", "delta",
            "no-sequence", "offset"]  # fmt: skip
_CODECS: list[Compression] = ["none", "none", "none", "gzip", "snappy", "lz4", "zstd"]
_SEQUENCES = ["next"] * 8 + ["again", "again", "gap", "first", "two-back"]
PRODUCE, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 0, 1, 11, 12, 13, 14


@dataclass(frozen=True)
class Batch:
    """One batch, and what is wrong with it."""

    values: tuple[bytes, ...]
    codec: Compression = "none"
    producer: int | None = None
    sequence: str = "next"
    epoch_shift: int = 0
    transactional: bool = False
    has_keys: bool = False
    age_ms: int = 0
    damage: str = ""


@dataclass(frozen=True)
class Produce:
    """One request; batches of one topic in a row stand together."""

    version: int
    acks: int
    transactional: int | None
    parts: tuple[tuple[str, int, Batch], ...]
    timeout_ms: int = 30_000


@dataclass(frozen=True)
class Wanted:
    """A partition of a fetch; `at` counts from the end that is known, if that is wanted."""

    topic: str
    partition: int
    at: int
    from_end: bool
    max_bytes: int
    epoch: int


@dataclass(frozen=True)
class Fetch:
    """One request; `session` is a number, `mode` says how it goes on."""

    version: int
    mode: str
    session: int
    wanted: tuple[Wanted, ...]
    forgotten: tuple[tuple[str, int], ...]
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    committed: bool


@dataclass(frozen=True)
class Member:
    """A request of a group's member: Join, Sync, Heartbeat or Leave, and what is wrong with it."""

    api: int
    version: int
    group: int
    member: int
    twist: str


@dataclass(frozen=True)
class Pipeline:
    """Requests that leave in pieces of some size, before any answer is read."""

    requests: tuple[Produce | Fetch | Member, ...]
    piece_bytes: int


@dataclass(frozen=True)
class Park:
    """A fetch that waits at the end of a partition while something is produced."""

    fetch: Fetch
    produced: tuple[Produce, ...]


@dataclass(frozen=True)
class Transact:
    """InitProducerId, AddPartitionsToTxn or EndTxn of a transactional producer."""

    what: str
    producer: int
    parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Administer:
    """Something that happens to a topic: `trim`, `recreate`, or a garbled request (`garble`)."""

    what: str
    topic: str
    offset: int = 0


Request = Produce | Fetch | Member
Step = Request | Pipeline | Park | Transact | Administer


class Author:
    """Writes programs with one source of chance."""

    def __init__(self, seed: int, *, has_limits: bool = True) -> None:
        self._chance = random.Random(seed)
        self._has_limits = has_limits
        self._count = 0

    def program(self, length: int) -> list[tuple[int, Step]]:
        """Connection and step."""
        return [(self._chance.randrange(CONNECTIONS), self._step()) for _ in range(length)]

    def _one_in(self, count: int) -> bool:
        return self._chance.randrange(count) == 0

    def _step(self) -> Step:
        kind = self._chance.choices(
            ["produce", "fetch", "pipeline", "park", "member", "transact", "trim", "recreate", "garble"],
            [30, 30, 16, 6, 12, 10, 2, 1, 1],
        )[0]
        if kind == "pipeline":
            return self._pipeline()
        if kind == "park":
            return self._park()
        if kind == "transact":
            return self._transact()
        if kind == "trim":
            topic = self._chance.choice(["plain", "stream", "stamped"])
            return Administer("trim", topic, self._chance.randrange(12))
        if kind in ("recreate", "garble"):
            return Administer(kind, "short-lived", self._chance.randrange(1 << 30))
        return self._request(kind)

    def _request(self, kind: str) -> Request:
        if kind == "produce":
            return self._produce()
        return self._fetch() if kind == "fetch" else self._member()

    # -- produce ------------------------------------------------------------------------------------------------

    def _produce(self) -> Produce:
        api = APIS[PRODUCE]
        version = self._chance.randint(api.oldest, api.newest)
        transactional = self._chance.choice(TRANSACTIONAL) if self._one_in(4) else None
        parts = tuple(self._part(transactional) for _ in range(self._chance.choice([1, 1, 1, 2, 3, 6])))
        acks = self._chance.choices([-1, 1, 0, 2], [10, 5, 2, 1])[0]
        if acks == 0 and self._one_in(2):
            return self._sure(acks)
        if transactional is not None and self._one_in(8):
            transactional = None
        return Produce(version, acks, transactional, parts)

    def _place(self, topics: list[str]) -> tuple[str, int]:
        topic = self._chance.choice(topics)
        number = self._chance.randrange(PARTITIONS.get(topic, 1))
        return topic, self._chance.choice([-1, 7]) if self._one_in(30) else number

    def _part(self, transactional: int | None) -> tuple[str, int, Batch]:
        topic, number = self._place(_ANY if self._one_in(5) else ["plain"] if transactional is not None else _USUAL)
        batch = self._batch(topic)
        if transactional is not None and not self._one_in(6):
            producer = self._chance.choice(TRANSACTIONAL) if self._one_in(12) else transactional
            batch = replace(batch, producer=producer, transactional=True)
        elif self._one_in(3):
            batch = replace(batch, producer=self._chance.choice(IDEMPOTENT))
        if batch.producer is not None:
            shift = self._chance.choice([-1, 1]) if self._one_in(15) else 0
            batch = replace(batch, sequence=self._chance.choice(_SEQUENCES), epoch_shift=shift)
        return topic, number, batch

    def _batch(self, topic: str) -> Batch:
        self._count += 1
        count = self._chance.choice([1, 1, 2, 5, 20])
        sizes = [0, 10, 100, 100, 2_000, 40_000 if self._has_limits else 2_000]
        size = self._chance.choice(sizes) if self._one_in(3) else 20
        values = tuple(b"%d.%d " % (self._count, place) + b"x" * size for place in range(count))
        return Batch(
            values,
            codec=self._chance.choice(_CODECS),
            has_keys=not self._one_in(3) if topic == "compacted" else self._one_in(3),
            age_ms=self._chance.choice([0, 0, 0, 60_000, 5_000_000]) if not self._one_in(20) else -200_000_000,
            damage=self._chance.choice(_DAMAGES) if self._one_in(9) else "",
        )

    def _sure(self, acks: int, topic: str = "plain", number: int = 0) -> Produce:
        """One that cannot be refused."""
        self._count += 1
        return Produce(self._chance.randint(3, 12), acks, None, ((topic, number, Batch((b"sure %d" % self._count,))),))

    # -- fetch --------------------------------------------------------------------------------------------------

    def _fetch(self) -> Fetch:
        api = APIS[FETCH]
        mode = self._chance.choices(["none", "new", "next", "wrong", "close"], [10, 4, 14, 1, 1])[0]
        count = self._chance.choice([0, 0, 1, 2]) if mode == "next" else self._chance.choice([1, 1, 2, 4, 8])
        forgotten = (self._place(_USUAL),) if mode == "next" and self._one_in(4) else ()
        return Fetch(
            self._chance.randint(api.oldest, api.newest),
            mode,
            self._chance.randrange(SESSIONS),
            tuple(self._wanted() for _ in range(count)),
            forgotten,
            max_bytes=self._limit([0, 1, 300, 5_000, 1 << 20, 50 << 20, -1], 50 << 20),
            min_bytes=self._chance.choice([0, 0, 1, 1, 500, 1 << 20]),
            max_wait_ms=self._chance.choice([0, 0, 1, 20]),
            committed=self._one_in(3),
        )

    def _limit(self, some: list[int], plenty: int) -> int:
        return self._chance.choice(some) if self._has_limits else plenty

    def _wanted(self) -> Wanted:
        topic, number = self._place(_ANY if self._one_in(8) else _USUAL)
        from_end = self._one_in(2)
        at = self._chance.choice([0, 0, 0, -1, -2, -5, 1, 5]) if from_end else self._chance.choice([0, 0, 1, 3, 9, 30])
        if self._one_in(30):
            at, from_end = self._chance.choice([-1, -5, 1 << 40]), False
        epoch = self._chance.choice([-1, 0, 1, 2, 9]) if self._one_in(6) else -1
        max_bytes = self._limit([0, 1, 200, 3_000, 1 << 20, 1 << 20, 1 << 20], 4 << 20)
        return Wanted(topic, number, at, from_end, max_bytes, epoch)

    # -- groups and transactions --------------------------------------------------------------------------------

    def _member(self) -> Member:
        key = self._chance.choice([JOIN, JOIN, HEARTBEAT, HEARTBEAT, SYNC, SYNC, LEAVE])
        twists = ["generation", "member", "group", "forbidden", "protocol", "session", "static"]
        return Member(
            key,
            self._chance.randint(APIS[key].oldest, APIS[key].newest),
            self._chance.randrange(GROUPS),
            self._chance.randrange(MEMBERS),
            self._chance.choice(twists) if self._one_in(4) else "",
        )

    def _transact(self) -> Transact:
        what = self._chance.choices(["init", "add", "commit", "abort"], [1, 3, 4, 3])[0]
        topics = ["plain", "plain", "stamped", "unwritable"]
        places = tuple(self._place(topics) for _ in range(self._chance.choice([1, 2])))
        return Transact(what, self._chance.choice(TRANSACTIONAL), places if what == "add" else ())

    # -- several requests at once -------------------------------------------------------------------------------

    def _pipeline(self) -> Pipeline:
        requests: list[Request] = []
        for _ in range(self._chance.choice([2, 3, 5, 12, 30])):
            request = self._request(self._chance.choices(["produce", "fetch", "member"], [8, 3, 1])[0])
            if isinstance(request, Produce) and request.acks == 0:
                request = self._sure(0)  # a refused one ends the connection: what was begun by then is a matter of time
            if isinstance(request, Produce) and request.transactional is not None:
                # Partitions that are verified together are refused together, those that earlier batches opened are not.
                # Nor is another id than the producer's, where these come in time.
                topic, number, batch = request.parts[0]
                own = replace(batch, producer=request.transactional) if batch.transactional else batch
                request = replace(request, parts=((topic, number, own),))
            if isinstance(request, Member) and request.api in (JOIN, SYNC):
                request = replace(request, api=HEARTBEAT, version=min(request.version, APIS[HEARTBEAT].newest))
            if isinstance(request, Fetch) and request.mode == "new":
                request = replace(request, mode="none")
            requests.append(request)
        return Pipeline(tuple(requests), self._chance.choice([50, 1_000, 10_000, 1 << 30]))

    def _park(self) -> Park:
        topic, number = self._chance.choice([("plain", 0), ("plain", 1), ("plain", 2), ("stamped", 0), ("stream", 1)])
        version = self._chance.randint(4, 12)
        wanted = Wanted(topic, number, 0, True, 1 << 20, -1)
        min_bytes = 1 if topic == "stream" else self._chance.choice([1, 150])
        fetch = Fetch(version, "none", 0, (wanted,), (), 1 << 20, min_bytes, 60_000, False)
        produced = self._produce()
        if produced.acks == 0:
            produced = self._sure(1)
        rest = [self._sure(self._chance.choice([0, 1, -1]), topic, number) for _ in range(3)]
        return Park(fetch, (produced, *rest))
