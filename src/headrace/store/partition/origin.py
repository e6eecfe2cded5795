"""Which node opened a partition last, on which server: whether the store may have gone back in time unnoticed.

A node that survives a loss of the store restores it from its cache. If it dies together with the store, the next node
finds an older log that looks complete, and offsets that consumers have seen would be reused. So before a node leads a
partition it writes the server's identity and its own name into the meta, and on a clean shutdown the end of the log. If
another node finds the log on another server, not as it was left, its end may be lost: the leader epoch rises, and the
next offset is beyond any that may have been used. So does the same node, if it was replaced for a while just before:
the store may have forgotten even that another node took the partition up.

Moving the data to another server while all nodes are stopped is safe: they shut down cleanly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition


def may_have_gone_back(partition: Partition) -> bool:
    """Whether records acknowledged by a node that is gone may be missing."""
    server, _, node = partition.taken_up.rpartition(" ")
    is_as_left = partition.left is not None and partition.end >= partition.left
    is_another = node != partition.context.process or partition.was_replaced
    return bool(server) and server != partition.link.identity and is_another and not is_as_left


def was_replaced(partition: Partition) -> bool:
    """Whether another node may have led since the last look, and only just: the store may have forgotten that."""
    seen, past = partition.confidence.seen, partition.context.past_leaders
    if seen is None:
        return False
    if partition.nodes.was_replaced_since(seen.term):
        return True
    return past.others_just_led_since(seen.term, partition.current_topic, partition.number)


async def is_outdated(partition: Partition) -> bool:
    """Whether another node may have written since the last look to a log that is not there any more.

    If its meta is there, it may say that nobody did, or that this node has read all of it.
    """
    seen, past = partition.confidence.seen, partition.context.past_leaders
    if seen is None or not past.others_led_since(seen.term, partition.current_topic, partition.number):
        return False
    taken_up, left = await partition.link.call("HMGET", partition.keys.meta, "server", "left")
    is_as_left = left is not None and partition.end >= int(left)
    return not is_as_left and taken_up != _signature(partition).encode()


def is_suspect(taken_up: bytes | None, left: bytes | None, server: str) -> bool:
    """Whether a meta makes a look at the partition necessary: it was not taken up, or left, under this server run."""
    return taken_up is not None and left is None and taken_up.decode().rpartition(" ")[0] != server


async def take_up(partition: Partition) -> None:
    """Registers this node as the partition's writer, if it leads it, before its first append."""
    mine = _signature(partition)
    if has_taken_up(partition):
        partition.was_replaced = False  # whatever others wrote meanwhile is on this server
        return
    if not partition.is_settled or not leads(partition):
        return
    known = partition.taken_up
    partition.was_replaced = partition.was_replaced or was_replaced(partition)  # it may have learnt that meanwhile
    if may_have_gone_back(partition):
        await partition.go_behind_lost()
        partition.count_event("margins", 1)
        partition.tell_watchers()
    reply = await partition.scripts.run("take_up", [partition.keys.meta, partition.keys.there], [known, mine])
    partition.check_there(reply)
    if reply:
        partition.taken_up, partition.left, partition.was_replaced = mine, None, False
    else:
        partition.doubt()  # another node took it up meanwhile: what it wrote has to be read first


async def leave(partition: Partition) -> None:
    """Notes where the log ends, for the next start: this node gives it back in good order.

    What is appended after all takes the partition up again first: the end that was noted would be wrong.
    """
    if partition.is_settled and leads(partition):
        partition.left = partition.end
        partition.doubt()
        await partition.scripts.run(
            "leave", [partition.keys.meta, partition.keys.there], [_signature(partition), partition.left]
        )


def is_ours(partition: Partition) -> bool:
    """Whether this node is the registered writer and still leads the partition."""
    return has_taken_up(partition) and partition.is_confirmed and leads(partition)


def has_taken_up(partition: Partition) -> bool:
    """Whether this node registered as the writer, and has not left it since."""
    return partition.taken_up == _signature(partition) and partition.left is None


def _signature(partition: Partition) -> str:
    return f"{partition.link.identity} {partition.context.process}"


def leads(partition: Partition) -> bool:
    """Whether this node is the leader, which restores lost records. One that is away does not know who is."""
    nodes = partition.nodes
    return nodes.leader(partition.current_topic, partition.number) == nodes.me and not nodes.is_away


def just_led(partition: Partition) -> bool:
    """Whether this node led it until just now, and may be the only one that knows its end."""
    past = partition.context.past_leaders
    return partition.confidence.seen is not None and past.just_led(partition.current_topic, partition.number)
