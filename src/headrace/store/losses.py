"""What a store lost for good, and the leader epochs that say so.

Records that cannot be restored leave a gap: its offsets are never used again (`floor`), the producers concerned lose
their state, the leader epoch rises, and it is logged, counted, and kept in the partition's meta for people to see.
All of it is durable before anything is appended behind the gap.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from headrace.store.partitions import AnyPartition

log = logging.getLogger(__name__)

_KEPT = 256
"""So many epochs and gaps are remembered, the newest."""


class EpochStart(msgspec.Struct, frozen=True, array_like=True):
    """From which offset on a leader epoch writes."""

    epoch: int
    start: int


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """Offsets that were given out and whose records the store lost."""

    start: int
    end: int


class Meta(NamedTuple):
    """What the store says of a partition beside its log."""

    is_there: bool
    start: int
    floor: int
    epochs: list[EpochStart]
    gaps: list[Gap]
    local: int


FIELDS = ("start", "floor", "epochs", "gaps", "local")
_EPOCHS = msgspec.json.Decoder(list[EpochStart])
_GAPS = msgspec.json.Decoder(list[Gap])


def parse(facts: list[Any]) -> Meta:
    """The reply of HMGET for FIELDS."""
    start, floor, epochs, gaps, local = facts
    return Meta(
        start is not None,
        int(start or 0),
        int(floor or 0),
        _EPOCHS.decode(epochs) if epochs else [],
        _GAPS.decode(gaps) if gaps else [],
        int(local or 0),
    )


def adopt(partition: AnyPartition, meta: Meta) -> None:
    """Takes over what is newer in the store than here: another node may have met a loss, or moved the log start."""
    partition.log_start = max(partition.log_start, meta.start)
    partition.trimmed_to = max(partition.trimmed_to, meta.local)
    partition.floor = max(partition.floor, meta.floor)
    if meta.epochs and meta.epochs[-1].epoch > partition.leader_epoch:
        partition.epochs, partition.gaps = meta.epochs, meta.gaps


def adopt_catalogue_epoch(partition: AnyPartition) -> None:
    """The catalogue remembers the epoch too, for when the meta was lost: it only rises."""
    topic = partition.store.catalogue.by_uuid.get(partition.topic.uuid, partition.topic)
    known = topic.epochs.get(partition.number, 0)
    if known > partition.leader_epoch:
        partition.epochs = [*partition.epochs, EpochStart(known, partition.end)]


async def record_gap(partition: AnyPartition, start: int, end: int) -> None:
    """Makes a loss durable and visible: no offset of it is used again, the epoch rises behind it."""
    meta = parse(await partition.store.link.call("HMGET", partition.keys.meta, *FIELDS))
    adopt(partition, meta)
    adopt_catalogue_epoch(partition)
    gap = Gap(start, end)
    partition.producers.forget_between(start, end)
    if gap in partition.gaps:
        return  # noted before, when something came between
    epoch = await _rise(partition, end, [*partition.gaps, gap][-_KEPT:])
    partition.store.count_event("gaps", 1)
    log.error(
        "acknowledged records were lost by the store: a gap stays in the log",
        extra={"partition": repr(partition), "from_offset": start, "to_offset": end, "leader_epoch": epoch},
    )


async def go_behind(partition: AnyPartition, start: int, end: int) -> None:
    """Gives up offsets whose records the store lost and the lake has: as with a gap, but readers miss nothing."""
    adopt(partition, parse(await partition.store.link.call("HMGET", partition.keys.meta, *FIELDS)))
    adopt_catalogue_epoch(partition)
    partition.producers.forget_between(start, end)
    if partition.floor < end:
        await _rise(partition, end, partition.gaps)


async def _rise(partition: AnyPartition, end: int, gaps: list[Gap]) -> int:
    """Makes a new leader epoch durable that begins at the end, or at a higher one; gives the epoch."""
    epoch = EpochStart(partition.leader_epoch + 1, max(partition.end, end))
    epochs, floor = [*partition.epochs, epoch][-_KEPT:], max(partition.floor, epoch.start)
    await _save(partition, floor, epochs, gaps)
    partition.floor, partition.epochs, partition.gaps = floor, epochs, gaps
    await partition.store.catalogue.set_epoch(partition.topic, partition.number, epoch.epoch)
    return epoch.epoch


async def save_again(partition: AnyPartition) -> None:
    """Stores what is known of losses again, if the store has forgotten it."""
    if partition.leader_epoch > 0:
        await _save(partition, partition.floor, partition.epochs, partition.gaps)
        await partition.store.catalogue.set_epoch(partition.topic, partition.number, partition.leader_epoch)


async def _save(partition: AnyPartition, floor: int, epochs: list[EpochStart], gaps: list[Gap]) -> None:
    reply = await partition.store.scripts.run(
        "save_losses",
        [partition.keys.meta, partition.keys.there],
        [floor, msgspec.json.encode(epochs), msgspec.json.encode(gaps)],
    )
    partition.check_there(reply)
