"""What is asked. Each scene plays with one broker and tells what it was answered, under names to compare by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from headrace.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.list_transactions import ListTransactionsRequest
from interop.transactions.asker import Asker, Producer

Told = Iterator[tuple[str, Any]]
Scene = Callable[[Asker], Told]
STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")
WHO = {"current": (0, 0), "retry": (0, -1), "older": (0, -2), "newer": (0, 1), "other": (1, 0)}
SINCE = 5
"""EndTxn of this version is that of version 2 of the protocol."""


def brought_to(asker: Asker, name: str, state: str, version: int) -> Producer:
    """A new id in a state, and its producer. Its epoch has predecessors."""
    for _ in range(3):
        error, producer = asker.init_patiently(name)
        assert error == 0, error
    if state == "Empty":
        return producer
    implicit = version >= SINCE
    if not implicit:
        assert asker.add(name, producer, (asker.topic, 0)) == [0]
    assert asker.produce(name, producer, version=12 if implicit else 11) == 0
    if state == "Ongoing":
        return producer
    error, after = asker.end(name, producer, commit=state == "CompleteCommit", version=version)
    assert error == 0, error
    assert asker.settle(name) == state
    return after if implicit else producer


def ending(asker: Asker) -> Told:
    """EndTxn in every state, of every version, from every producer."""
    for state, version, commit, who in product(STATES, (1, 2, 4, 5), (True, False), WHO):
        name = f"{'commit' if commit else 'abort'} v{version} by the {who} one, {state}"
        pid, epoch = brought_to(asker, name, state, 5 if version == SINCE else 3)
        asked = pid + WHO[who][0], epoch + WHO[who][1]
        error, answered = asker.end(name, asked, commit=commit, version=version)
        yield name, (error, answered[0] == pid if answered[0] >= 0 else None, answered[1] - epoch)
        yield f"{name}, then", asker.settle(name)


def adding(asker: Asker) -> Told:
    """AddPartitionsToTxn and AddOffsetsToTxn in every state."""
    for state, version, who in product(STATES, (0, 1, 2, 3), WHO):
        name = f"add v{version} by the {who} one, {state}"
        pid, epoch = brought_to(asker, name, state, 3)
        asked = pid + WHO[who][0], epoch + WHO[who][1]
        yield name, asker.add(name, asked, (asker.topic, 1), version=version)
        yield f"{name}, a group", asker.add_group(name, asked, f"g {name}", version=version)
        yield f"{name}, then", asker.settle(name)
    name = "add nowhere"
    _, producer = asker.init(name)
    yield "two of three", asker.add(name, producer, (asker.topic, 0), ("not there", 0), (asker.topic, 1))
    yield "no such partition", asker.add(name, producer, (asker.topic, 7))
    yield "the state", asker.settle(name)
    yield "an unknown id", asker.add("nobody", producer, (asker.topic, 0))
    yield "an empty id", asker.add("", producer, (asker.topic, 0))
    yield "a group to an unknown id", asker.add_group("nobody", producer, "g")
    yield "a group to an empty id", asker.add_group("", producer, "g")


def producing(asker: Asker) -> Told:
    """Produce in every state, to a partition that is not in the transaction."""
    for state, version, who in product(STATES, (9, 10, 11, 12), WHO):
        name = f"produce v{version} by the {who} one, {state}"
        pid, epoch = brought_to(asker, name, state, 5 if version == 12 else 3)
        asked = pid + WHO[who][0], epoch + WHO[who][1]
        yield name, asker.produce(name, asked, number=1, version=version)
        yield f"{name}, then", asker.settle(name)
    name = "produce"
    _, producer = asker.init(name)
    yield "an unknown id", asker.produce("nobody", producer)
    yield "sequence 5 first", asker.produce(name, producer, 5)
    yield "sequence 0", asker.produce(name, producer)
    yield "again", asker.produce(name, producer)
    yield "with a gap", asker.produce(name, producer, 9)
    yield "not transactional", asker.produce(name, producer, 1, transactional=False)
    yield "not transactional, without the id", asker.produce(None, producer, 1, transactional=False)
    _, after = asker.end(name, producer, commit=True, version=5)
    asker.settle(name)
    yield "late", asker.produce(name, producer, 1)
    yield "next, not from 0", asker.produce(name, after, 1)
    yield "next", asker.produce(name, after)


def offsets(asker: Asker) -> Told:
    """TxnOffsetCommit in every state, and what its group has to commit."""
    for state, version, who in product(STATES, (2, 3, 4, 5), WHO):
        name = f"offsets v{version} by the {who} one, {state}"
        pid, epoch = brought_to(asker, name, state, 5 if version == 5 else 3)
        asked = pid + WHO[who][0], epoch + WHO[who][1]
        yield name, asker.commit_offset(name, asked, f"g {name}", version=version)
        yield f"{name}, then", asker.settle(name)
    name = "offsets"
    _, producer = asker.init(name)
    yield "an unknown id", asker.commit_offset("nobody", producer, "g")
    yield "an unknown topic", asker.commit_offset(name, producer, "g", topic="not there")
    yield "an unknown member", asker.commit_offset(name, producer, "g", member_id="m", generation_id=-1)
    yield "an unknown generation", asker.commit_offset(name, producer, "g", generation_id=4)
    yield "long metadata", asker.commit_offset(name, producer, "g", metadata="m" * 5_000)
    yield "pending", asker.commit_offset(name, producer, "readers", 7)
    yield "stable while pending", asker.committed("readers", stable=True)
    yield "not stable while pending", asker.committed("readers", stable=False)
    _, producer = asker.end(name, producer, commit=True, version=5)
    asker.settle(name)
    yield "stable after the commit", asker.committed("readers", stable=True)
    yield "pending again", asker.commit_offset(name, producer, "readers", 9)
    asker.end(name, producer, commit=False, version=5)
    asker.settle(name)
    yield "stable after an abort", asker.committed("readers", stable=True)


def beginning(asker: Asker) -> Told:
    """InitProducerId in every state, and who may recover."""
    for state, version, who in product(STATES, (3, 4, 5), WHO):
        name = f"init v{version} by the {who} one, {state}"
        pid, epoch = brought_to(asker, name, state, 5)
        asked = pid + WHO[who][0], epoch + WHO[who][1]
        for attempt in ("", ", then", ", then again"):
            error, answered = asker.init(name, asked, version=version)
            yield f"{name}{attempt}", (error, answered[0] - pid if error == 0 else None, answered[1] - epoch)
            yield f"{name}{attempt}: state", asker.settle(name)
    yield "an empty id", asker.init("")[0]
    yield "no time-out", [asker.init("x", timeout_ms=ms)[0] for ms in (0, -1, 900_001)]
    yield "half a producer", [asker.init("x", who)[0] for who in ((5, -1), (-1, 5))]
    yield "a producer of an unknown id", asker.init("new one", (77, 3))[0]


def fencing(asker: Asker) -> Told:
    """A second producer aborts what the first one left open."""
    for version in (3, 5):
        name = f"fenced v{version}"
        first = brought_to(asker, name, "Ongoing", version)
        yield f"{name}: the second one", asker.init(name)[0]
        yield f"{name}: state", asker.settle(name)
        error, second = asker.init(name)
        yield f"{name}: its epoch", (error, second[0] == first[0], second[1] - first[1])
        yield f"{name}: commit", asker.end(name, first, commit=True, version=version)[0]
        yield f"{name}: abort", asker.end(name, first, commit=False, version=version)[0]
        yield f"{name}: produce", asker.produce(name, first, 1, version=12 if version == SINCE else 11)
        yield f"{name}: recover", asker.init(name, first)[0]
    yield "the log", asker.fetch(1)


def expiring(asker: Asker) -> Told:
    """A transaction that takes too long is aborted, and its producer is told so."""
    for version in (3, 5):
        name = f"expired v{version}"
        _, producer = asker.init(name, timeout_ms=300)
        if version < SINCE:
            asker.add(name, producer, (asker.topic, 0))
        assert asker.produce(name, producer, version=12 if version == SINCE else 11) == 0
        deadline = time.monotonic() + 30
        while asker.state(name).transaction_state != "CompleteAbort" and time.monotonic() < deadline:
            time.sleep(0.05)
        yield f"{name}: epoch", asker.state(name).producer_epoch - producer[1]
        yield f"{name}: produce", asker.produce(name, producer, 1, version=12 if version == SINCE else 11)
        yield f"{name}: commit", asker.end(name, producer, commit=True, version=version)[0]
        error, answered = asker.end(name, producer, commit=False, version=version)
        yield f"{name}: abort", (error, answered[1] - producer[1])
        error, answered = asker.init(name, producer)
        yield f"{name}: recover", (error, answered[0] == producer[0], answered[1] - producer[1])


def reading(asker: Asker) -> Told:
    """What is in the log, what is stable, and which transactions a reader is told to leave out."""
    producers: dict[str, Producer] = {}
    for name in ("a", "b", "c"):
        _, producers[name] = asker.init(f"reading {name}")

    def end(name: str, *, commit: bool) -> None:
        error, producers[name] = asker.end(f"reading {name}", producers[name], commit=commit, version=5)
        assert error == 0
        asker.settle(f"reading {name}")

    def looked(when: str) -> Told:
        for isolation, offset in product((0, 1), (0, 2, 4)):
            yield f"{when}: fetch at {offset} with {isolation}", asker.fetch(isolation, offset)
        for isolation, timestamp in product((0, 1), (-1, -2, -3, 1, 1_700_000_000_000, 1_900_000_000_000)):
            yield f"{when}: offset of {timestamp} with {isolation}", asker.offset(timestamp, isolation)

    for step, (name, action) in enumerate(
        [("a", "send"), ("b", "send"), ("a", "abort"), ("c", "send"), ("b", "commit"), ("b", "send"), ("c", "abort")]
    ):
        if action == "send":
            assert asker.produce(f"reading {name}", producers[name]) == 0
        else:
            end(name, commit=action == "commit")
        yield from looked(f"{step} {name} {action}")
    deleting = DeleteRecordsRequest([DeleteRecordsTopic(asker.topic, [DeleteRecordsPartition(0, 6)])], 5_000)
    yield "delete past what is open", asker.ask(deleting).topics[0].partitions[0].error_code
    yield "what is stable then", [asker.offset(-1, 1), asker.offset(-2, 1)]
    end("b", commit=True)
    yield "and after the commit", asker.offset(-1, 1)


def describing(asker: Asker) -> Told:
    """DescribeTransactions, ListTransactions and DescribeProducers."""
    for version, state in product((3, 5), STATES):
        name = f"described v{version} {state}"
        producer = brought_to(asker, name, state, version)
        found = asker.state(name)
        topics = [(one.topic == asker.topic, one.partitions) for one in found.topics]
        yield name, (found.error_code, found.transaction_state, found.transaction_timeout_ms, topics)
        yield f"{name}: producer", (found.producer_id == producer[0], found.producer_epoch - producer[1])
        if not state.startswith("Complete"):  # Kafka goes on showing when the last one began
            yield f"{name}: begun", found.transaction_start_time > 0
    yield "an unknown id", asker.state("nobody").error_code
    for what, request in {
        "by state": ListTransactionsRequest(["Ongoing"]),
        "by an unknown state": ListTransactionsRequest(["Ongoing", "Nonsense"]),
        "by an unknown producer": ListTransactionsRequest(producer_id_filters=[12]),
        "by age": ListTransactionsRequest(["Ongoing"], duration_filter=3_600_000),
        "by pattern": ListTransactionsRequest(transactional_id_pattern="described v3.*"),
        "by a bad pattern": ListTransactionsRequest(transactional_id_pattern="("),
    }.items():
        answer = asker.ask(request)
        names = sorted(one.transactional_id for one in answer.transaction_states)
        mine = [name for name in names if name.startswith("described")]
        yield what, (answer.error_code, answer.unknown_state_filters, mine)
    rows = asker.ask(DescribeProducersRequest([TopicRequest(asker.topic, [0, 9])])).topics[0].partitions
    yield "producers", [row.error_code for row in rows]
    shown = [(one.producer_epoch, one.last_sequence, one.current_txn_start_offset) for one in rows[0].active_producers]
    yield "producers of partition 0", sorted(shown)


SCENES: tuple[Scene, ...] = (
    ending, adding, producing, offsets, beginning, fencing, expiring, reading, describing,
)  # fmt: skip
