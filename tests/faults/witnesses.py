"""Producers and consumer groups that go on through any trouble, and remember all that they sent, were told and got.

They are confluent-kafka's (librdkafka) with its own patience, idempotent and with several requests in flight. What the
log has to look like follows from their memory alone: `check` compares it with the log as a reader without a group
finds it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.broker_process import wait_until

Place = tuple[str, int]
"""A topic's partition."""

_STUCK_S = 90.0
_COMMIT_EVERY_S = 0.5
_PADDING = bytes(80)


class Sending:
    """A producer that sends numbers to each place in turn until it is told to stop, and what it was told."""

    def __init__(self, name: str, places: Sequence[Place]) -> None:
        self.name, self.places = name, places
        self.failures: list[str] = []
        self.told: dict[Place, dict[int, int]] = {place: {} for place in places}
        """Where each number is, as it was answered."""
        self.unplaced: dict[Place, set[int]] = {place: set() for place in places}
        """Numbers that were acknowledged by the answer to a later one: where they are was not said."""
        self.sent = 0
        """How many numbers; once it has stopped."""

    def goes_on(self, more: int = 20, places: Sequence[Place] = ()) -> None:
        """Returns once so many more records of every place, or of some of them, were acknowledged."""
        goals = {place: self._acknowledged(place) + more for place in places or self.places}

        def reached() -> bool:
            return bool(self.failures) or all(self._acknowledged(place) >= goal for place, goal in goals.items())

        try:
            wait_until(reached, f"{self.name} is stuck", timeout_s=_STUCK_S)
        except AssertionError as error:
            error.add_note(f"in {[place for place, goal in goals.items() if self._acknowledged(place) < goal]}")
            raise
        assert not self.failures, self.failures[:5]

    def _acknowledged(self, place: Place) -> int:
        return len(self.told[place]) + len(self.unplaced[place])

    def stop(self) -> None:
        """Waits for the last answers."""
        raise NotImplementedError


class Sender(Sending):
    """librdkafka's, idempotent, in a thread."""

    def __init__(self, name: str, addresses: str, places: Sequence[Place], pause_s: float, keys: int = 0) -> None:
        super().__init__(name, places)
        self._pause_s, self._keys = pause_s, keys
        self.longest_pause_s = dict.fromkeys(places, 0.0)
        """Between two answers of a place, since `watch_pauses`."""
        self._answered_at = dict.fromkeys(places, 0.0)
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": addresses,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.max.ms": 500,
                "socket.timeout.ms": 10_000,
                "error_cb": self._note,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _note(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(f"{self.name} is at its end: {error}")

    def _run(self) -> None:
        while not self._stop.is_set() and not self.failures:
            for place in self.places:
                self._send(place, self.sent)
            self.sent += 1
            self._producer.poll(self._pause_s)
        if left := self._flush():
            self.failures.append(f"{left} records of {self.name} were never answered")

    def _flush(self) -> int:
        """Waits as long as answers come in, however slowly; returns how many never did."""
        left = len(self._producer)
        while left and (fewer := self._producer.flush(_STUCK_S)) < left:
            left = fewer
        return left

    def _send(self, place: Place, number: int) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{self.name} {number} to {place}: {error}")
            else:
                if (offset := message.offset()) is None:  # it got an error, maybe after it was appended
                    self.unplaced[place].add(number)
                else:
                    self.told[place][number] = offset
                now = time.monotonic()
                self.longest_pause_s[place] = max(self.longest_pause_s[place], now - self._answered_at[place])
                self._answered_at[place] = now

        value = b"%b %d " % (self.name.encode(), number) + _PADDING
        while True:
            try:
                self._producer.produce(place[0], value, self._key_of(number), place[1], delivered)
                return
            except BufferError:
                self._producer.poll(0.05)
            except confluent_kafka.KafkaException as error:
                self.failures.append(f"{self.name} {number} to {place}: {error}")
                return

    def _key_of(self, number: int) -> bytes | None:
        return b"%d" % (number % self._keys) if self._keys else None

    def watch_pauses(self) -> None:
        """Forgets the pauses that there were."""
        now = time.monotonic()
        for place in self.places:
            self.longest_pause_s[place], self._answered_at[place] = 0.0, now

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Receiving:
    """A consumer group, and what was delivered to any of its members."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: list[str] = []
        self.delivered: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self.committed: dict[Place, int] = {}
        """As it was acknowledged last."""
        self.assignments = 0
        """How often a member was given partitions: more often after each rebalance."""

    def gets(self, place: Place, records: dict[int, bytes], gaps: Sequence[tuple[int, int]] = ()) -> None:
        """Returns once all records were delivered; nothing else was, but for what was lost later."""
        got = self.delivered[place]
        wait_until(lambda: got.keys() >= records.keys(), f"{self.name} is stuck in {place}", timeout_s=_STUCK_S)
        there = {at: value for at, value in got.items() if at in records or not any(a <= at < b for a, b in gaps)}
        assert there == records, f"{self.name} got records in {place} that are not in the log"

    def goes_on(self, places: Sequence[Place]) -> None:
        """Returns once a later commit was acknowledged in each place."""
        before = {place: self.committed.get(place, -1) for place in places}
        wait_until(
            lambda: all(self.committed.get(place, -1) > offset for place, offset in before.items()),
            f"{self.name} is stuck",
            timeout_s=_STUCK_S,
        )

    def has_one_owner_each(self, addresses: str, places: Sequence[Place]) -> None:
        """Returns once the group is stable and every partition is given to one member."""
        admin = AdminClient({"bootstrap.servers": addresses})

        def is_shared_out() -> bool:
            try:
                found = admin.describe_consumer_groups([self.name])[self.name].result()
            except confluent_kafka.KafkaException:
                return False  # its owner has just changed
            given = [(one.topic, one.partition) for m in found.members for one in m.assignment.topic_partitions]
            return found.state == ConsumerGroupState.STABLE and sorted(given) == sorted(places)

        wait_until(is_shared_out, f"partitions of {self.name} without an owner, or with two", timeout_s=_STUCK_S)

    def stop(self) -> None:
        raise NotImplementedError


class Group(Receiving):
    """librdkafka's, each member in a thread."""

    def __init__(self, name: str, addresses: str, topics: Sequence[str], members: int) -> None:
        super().__init__(name)
        self._members = [_Member(self, addresses, topics) for _ in range(members)]

    def forms(self, places: Sequence[Place]) -> None:
        """Returns once every member has partitions, and all of them together have each once."""

        def is_shared_out() -> bool:
            given = [member.places for member in self._members]
            return all(given) and sorted(place for part in given for place in part) == sorted(places)

        wait_until(is_shared_out, f"not all members of {self.name} were given partitions", timeout_s=_STUCK_S)

    def stop(self) -> None:
        for member in self._members:
            member.stop()


class _Member:
    """Within one assignment offsets rise, and it begins where the group committed or later."""

    def __init__(self, group: Group, addresses: str, topics: Sequence[str]) -> None:
        self._group = group
        self._next: dict[Place, int] = {}
        self._is_committing = False
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": addresses,
                "group.id": group.name,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "on_commit": self._committed,
            }
        )
        self._topics = list(topics)
        self._thread = threading.Thread(target=self._run, name=group.name)
        self._thread.start()

    @property
    def places(self) -> list[Place]:
        """What it was given last."""
        return list(self._next)

    def _run(self) -> None:
        self._consumer.subscribe(self._topics, on_assign=self._assigned)
        commit_at = 0.0
        while not self._stop.is_set():
            # One by one: a rebalance in the middle of several would leave it open which of them came before it.
            if (message := self._consumer.poll(0.05)) is not None:
                self._take(message)
            if self._next and not self._is_committing and time.monotonic() >= commit_at:
                self._is_committing, commit_at = True, time.monotonic() + _COMMIT_EVERY_S
                self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=True)
        except confluent_kafka.KafkaException:
            self._is_committing = False  # nothing was read since the last rebalance

    def _assigned(self, _: Any, assigned: list[Any]) -> None:
        self._group.assignments += 1
        self._next = {
            place: self._group.committed.get(place, 0) for place in ((p.topic, p.partition) for p in assigned)
        }

    def _committed(self, error: Any, places: list[Any]) -> None:
        self._is_committing = False
        for one in places:
            if error is None and one.error is None and one.offset >= 0:
                self._group.committed[one.topic, one.partition] = one.offset

    def _take(self, message: Any) -> None:
        if message.error() is not None:
            if not message.error().retriable():
                self._group.failures.append(f"{self._group.name}: {message.error()}")
            return
        place, offset = (message.topic(), message.partition()), message.offset()
        if offset < self._next.get(place, 0):
            self._group.failures.append(f"{self._group.name} went back to {offset} in {place} from {self._next[place]}")
        self._next[place] = offset + 1
        self._group.delivered[place][offset] = message.value()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def read_log(addresses: str, place: Place, last: int | None = None) -> dict[int, bytes]:
    """Offset -> value of all records, in their order, as a reader without a group gets them.

    A log that goes on has no end to wait for: then it is read up to the offset `last`, or a little further.
    """
    found: dict[int, bytes] = {}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": addresses, "group.id": "-", "enable.partition.eof": True})
    consumer.assign([confluent_kafka.TopicPartition(*place, confluent_kafka.OFFSET_BEGINNING)])
    is_read = False

    def read() -> bool:
        nonlocal is_read
        message: Any
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                found[message.offset()] = message.value()
                is_read = is_read or message.offset() == last
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                is_read = True
            else:
                raise AssertionError(message.error())
        return is_read

    wait_until(read, f"{place} cannot be read", timeout_s=_STUCK_S)
    consumer.close()
    return found


Gaps = Callable[[Place], list[tuple[int, int]]]
"""The offsets, from and up to, that a broker reported as lost."""


def no_gaps(place: Place) -> list[tuple[int, int]]:
    return []


def check(addresses: str, senders: Sequence[Sending], groups: Sequence[Receiving], gaps_of: Gaps = no_gaps) -> None:
    """Nothing is lost, doubled or out of order, all is where it was said to be, and each group got all of it.

    What the store itself lost and the broker said so, offset by offset, may be missing; and no offset is used twice.
    """
    failures = [*(f for one in senders for f in one.failures), *(f for one in groups for f in one.failures)]
    assert not failures, failures[:5]
    for group in groups:
        group.has_one_owner_each(addresses, senders[0].places)
    for place in senders[0].places:
        records = read_log(addresses, place)
        for sender in senders:
            mine = [
                (offset, value) for offset, value in records.items() if value.startswith(sender.name.encode() + b" ")
            ]
            gaps, told = gaps_of(place), sender.told[place]
            lost = {number for number, at in told.items() if any(start <= at < end for start, end in gaps)}
            numbers = [int(value.split(b" ")[1]) for _, value in mine]
            kept = [number for number in range(sender.sent) if number not in lost or told[number] in records]
            assert numbers == kept, f"{sender.name} in {place}: {first_difference(numbers)}, gaps {gaps}"
            found = {number: offset for number, (offset, _) in zip(numbers, mine, strict=True)}
            elsewhere = {number: (at, told[number]) for number, at in found.items() if told.get(number, at) != at}
            assert not elsewhere, f"{place}: not where they were said to be: {elsewhere}"
            assert found.keys() <= told.keys() | sender.unplaced[place], place
        for group in groups:
            group.gets(place, records, gaps_of(place))


def first_difference(numbers: list[int]) -> str:
    """Where numbers stop being 0, 1, 2, ..."""
    at = next((at for at, number in enumerate(numbers) if at != number), len(numbers))
    return f"{len(numbers)} records, from {at} on: {numbers[max(at - 2, 0) : at + 8]}"
