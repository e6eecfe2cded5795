"""Records lost for good, and the leader epochs that show it.

Records that cannot be restored leave a gap: its offsets are never reused (`floor`), the producers concerned lose their
state, the leader epoch rises, and the gap is logged, counted, and kept in the partition's meta. All of it is durable
before anything is appended after the gap.

What is written here comes from a cache, so it is compared and set: a writer first reads what the store says, and
replaces only that. A node with an outdated cache therefore cannot undo anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.store.partition import origin
from headrace.store.redis.errors import LeftToLeader

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition

log = logging.getLogger(__name__)

_KEPT = 256
"""So many epochs and gaps are remembered, the newest."""


class EpochStart(msgspec.Struct, frozen=True, array_like=True):
    """From which offset on a leader epoch writes."""

    epoch: int
    start: int


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """Offsets whose records were acknowledged and then lost by the store."""

    start: int
    end: int


class Meta(NamedTuple):
    """A partition's metadata in the store."""

    is_there: bool
    start: int
    floor: int
    epochs: list[EpochStart]
    gaps: list[Gap]
    local: int
    taken_up: str
    """By which node, on which server (`origin.py`); empty if nobody ever did."""
    left: int | None
    """Where the log ended when that node left it in good order."""
    is_being_remade: bool
    """Whether a node began to make a log again that was not there, and has not said that it is done."""
    margin: str
    """The last one that took the log up and may have lost its end: a margin was left behind that."""
    replaced: list[Gap]
    """Where acknowledged records were lost, and may be another node's now: for people, and for checkers."""
    losses: tuple[bytes, bytes, bytes, bytes]
    """Floor, epochs, gaps and what was replaced as they are stored, to be written over as they were read."""


FIELDS = ("start", "floor", "epochs", "gaps", "local", "server", "left", "remaking", "margin", "replaced")
_EPOCHS = msgspec.json.Decoder(list[EpochStart])
_GAPS = msgspec.json.Decoder(list[Gap])


def parse(facts: list[Any]) -> Meta:
    """The reply of HMGET for FIELDS."""
    start, floor, epochs, gaps, local, server, left, remaking, margin, replaced = facts
    return Meta(
        start is not None,
        int(start or 0),
        int(floor or 0),
        _EPOCHS.decode(epochs) if epochs else [],
        _GAPS.decode(gaps) if gaps else [],
        int(local or 0),
        server.decode() if server else "",
        int(left) if left is not None else None,
        remaking is not None,
        margin.decode() if margin else "",
        _GAPS.decode(replaced) if replaced else [],
        (floor or b"", epochs or b"", gaps or b"", replaced or b""),
    )


def adopt(partition: Partition, meta: Meta) -> None:
    """Takes newer values from the store: another node may have noted a loss, or moved the log start."""
    partition.log_start = max(partition.log_start, meta.start)
    partition.trimmed_to = max(partition.trimmed_to, meta.local)
    partition.floor = max(partition.floor, meta.floor)
    partition.taken_up, partition.left = meta.taken_up, meta.left
    partition.is_being_remade = meta.is_being_remade
    if meta.is_being_remade:
        partition.unreported_gaps.update(set(meta.gaps) - set(partition.gaps))
    partition.gaps = united(partition.gaps, meta.gaps)
    if meta.epochs and meta.epochs[-1].epoch > partition.leader_epoch:
        _adopt_epochs(partition, meta.epochs)
    elif _last(meta) == partition.leader_epoch:
        partition.epochs = _begun_later(partition.epochs, {one.epoch: one.start for one in meta.epochs})


def united(*lists: list[Gap]) -> list[Gap]:
    """All gaps, each once and in order; the newest, if they are many."""
    return sorted({gap for gaps in lists for gap in gaps}, key=lambda gap: (gap.start, gap.end))[-_KEPT:]


def adopt_catalogue_epoch(partition: Partition) -> None:
    """The catalogue remembers the epoch too, for when the meta was lost: it only rises."""
    topic = partition.current_topic
    known = topic.epochs.get(partition.number, 0)
    if known > partition.leader_epoch:
        _adopt_epochs(partition, [*partition.epochs, EpochStart(known, partition.end)])


def _adopt_epochs(partition: Partition, epochs: list[EpochStart]) -> None:
    """A new epoch means that records may be lost: those of any producer, whichever node they were sent to."""
    partition.epochs = epochs
    partition.sequence_gaps.lose(epochs[-1].start)


def _begun_later(epochs: list[EpochStart], starts: dict[int, int]) -> list[EpochStart]:
    return [EpochStart(one.epoch, max(one.start, starts.get(one.epoch, 0))) for one in epochs]


async def begin_behind_end(partition: Partition, told: int | None) -> None:
    """Has epochs that other nodes raised beside this one begin behind all that it gave out with the one `told`.

    Who finds a loss need not lead, and the leader goes on with the old epoch until it looks: what it has in flight has
    that, too. To consumers that have read it the log would look truncated, and they would start over.
    """
    if told is None:
        return
    saved = partition.leader_epoch == told or not (origin.has_taken_up(partition) and origin.leads(partition))
    while not saved:
        stored = await _adopt_stored(partition)
        end = partition.end + partition.writer.records_in_flight
        new = {one.epoch: end for one in partition.epochs if one.epoch > told}
        partition.epochs = _begun_later(partition.epochs, new)
        saved = await _save(partition, stored, stored._replace(epochs=partition.epochs))


async def record_gap(partition: Partition, start: int, end: int) -> None:
    """Makes a loss durable and visible: no offset of it is used again, the epoch rises behind it."""
    await record_gaps(partition, [Gap(start, end)])


async def record_gaps(partition: Partition, gaps: list[Gap]) -> None:
    """The same for what one loss left, in order: one epoch rises behind all of it.

    It may fail half-way, and is repeated then: a gap is reported once it is in the store, whichever try put it there.
    """
    epoch = None
    while epoch is None:
        stored = await _adopt_stored(partition)
        for gap in gaps:
            partition.producers.forget_between(gap.start, gap.end)
        news = [gap for gap in gaps if not _is_noted(partition, gap)]
        if not news:
            break  # by another node, or by us when something came between
        partition.unreported_gaps.update(news)
        epoch = await _rise(partition, stored, news[-1].end, news)
    await _report(partition, gaps)


async def _report(partition: Partition, gaps: list[Gap]) -> None:
    found = [gap for gap in gaps if gap in partition.unreported_gaps]
    if found:
        await partition.context.catalogue.set_epoch(partition.topic, partition.number, partition.leader_epoch)
    for gap in found:
        partition.unreported_gaps.discard(gap)
        partition.count_event("gaps", 1)
        log.error(
            "the store lost acknowledged records: the log has a gap",
            extra={
                "partition": repr(partition),
                "from_offset": gap.start,
                "to_offset": gap.end,
                "leader_epoch": partition.leader_epoch,
            },
        )


async def note_replaced(partition: Partition, replaced: Gap) -> None:
    """Makes it durable and visible that this node's records were lost at offsets that may be another node's now.

    A margin there is no report: it says that something may be lost.
    """
    if replaced not in partition.replaced:
        log.error(
            "the store's history differs from what was acknowledged",
            extra={"partition": repr(partition), "from_offset": replaced.start, "to_offset": replaced.end},
        )
    partition.replaced = united(partition.replaced, [replaced])
    saved = False
    while not saved:
        stored = await _adopt_stored(partition)
        if replaced in stored.replaced:
            return
        saved = await _save(partition, stored, stored._replace(replaced=united(stored.replaced, [replaced])))
    partition.count_event("replaced", 1)


async def give_up(partition: Partition, gaps: list[Gap]) -> None:
    """Records gaps, if this node leads the partition.

    Another node looks at it too, and may not have what the leader has in its cache: it leaves that to the leader, and
    goes on once all is there again or the gap is noted.
    """
    if not origin.leads(partition):
        await _adopt_stored(partition)
        if not all(_is_noted(partition, gap) for gap in gaps):
            raise LeftToLeader(repr(partition))
    await record_gaps(partition, gaps)


async def is_given_up(partition: Partition, offset: int) -> bool:
    """Whether the store says, or this node knows, that the record at an offset is lost."""
    await _adopt_stored(partition)
    return _is_noted(partition, Gap(offset, offset + 1))


def uncovered(stored: Iterable[tuple[int, int]], start: int, end: int) -> list[Gap]:
    """The offsets from `start` to `end` that no entry has; entries come in order."""
    gaps = []
    for base, behind in stored:
        if start < min(base, end):
            gaps.append(Gap(start, min(base, end)))
        start = max(start, behind)
    return [*gaps, Gap(start, end)] if start < end else gaps


async def finish_remaking(partition: Partition) -> None:
    """Continues with a log whose restore was cut short by the death of its node: the rest is lost too.

    What that node noted as lost it may not have reported, and nobody can ask it any more.
    """
    if partition.is_being_remade and origin.leads(partition):
        await partition.remake_rest()
        await _report(partition, partition.gaps)
        await note_remade(partition)


async def note_remade(partition: Partition) -> None:
    """The restore is complete: everything is back, or noted as lost."""
    await partition.link.call("HDEL", partition.keys.meta, "remaking")
    partition.is_being_remade = False


def _is_noted(partition: Partition, gap: Gap) -> bool:
    return any(one.start <= gap.start and gap.end <= one.end for one in partition.gaps)


async def go_behind(partition: Partition, start: int, end: int) -> None:
    """Skips offsets whose records this node lost, but that have some: the lake's, or another node's. It is no gap."""
    epoch = None
    while epoch is None:
        stored = await _adopt_stored(partition)
        partition.producers.forget_between(start, end)
        if partition.floor >= end:
            return
        epoch = await _rise(partition, stored, end, [])


async def has_margin(partition: Partition) -> bool:
    """Whether a margin was left for the present loss, by a try that did not get to its end.

    The log is taken up only once all of it succeeded, so each further try would skip as many offsets again.
    """
    stored = await _adopt_stored(partition)
    if not stored.taken_up or stored.margin != stored.taken_up:
        return False
    await partition.context.catalogue.set_epoch(partition.topic, partition.number, partition.leader_epoch)
    return True


async def leave_margin(partition: Partition, start: int, end: int) -> None:
    """Skips offsets that may have been acknowledged and lost: not an error, since no loss is known."""
    epoch = None
    while epoch is None:
        stored = await _adopt_stored(partition)
        epoch = await _rise(
            partition, stored._replace(margin=stored.taken_up), end, [Gap(start, end)] if start < end else []
        )
    log.warning(
        "the store may have gone back in time unseen: the log continues past any offset it may have used",
        extra={"partition": repr(partition), "from_offset": start, "to_offset": end, "leader_epoch": epoch},
    )


async def _adopt_stored(partition: Partition) -> Meta:
    stored = parse(await partition.link.call("HMGET", partition.keys.meta, *FIELDS))
    adopt(partition, stored)
    adopt_catalogue_epoch(partition)
    return stored


async def _rise(partition: Partition, stored: Meta, end: int, gaps: list[Gap]) -> int | None:
    """Makes a new leader epoch durable that begins at the end, or at a higher one; None if the store has changed."""
    # Before anything rises: each try that fails at the catalogue would go further.
    await partition.context.catalogue.check_copies()
    start = max(partition.end, partition.floor, end)
    epoch = EpochStart(partition.leader_epoch + 1, start)
    risen = stored._replace(floor=start, epochs=[*partition.epochs, epoch][-_KEPT:], gaps=united(partition.gaps, gaps))
    if not await _save(partition, stored, risen):
        return None
    adopt(partition, risen)
    await partition.context.catalogue.set_epoch(partition.topic, partition.number, epoch.epoch)
    return epoch.epoch


async def save_again(partition: Partition) -> None:
    """Writes back known losses that the store has forgotten."""
    saved = False
    while not saved:
        stored = await _adopt_stored(partition)
        replaced = united(stored.replaced, partition.replaced)
        known = stored._replace(floor=partition.floor, epochs=partition.epochs, gaps=partition.gaps, replaced=replaced)
        is_news = known.floor > stored.floor or partition.leader_epoch > _last(stored)
        is_news = is_news or (known.gaps, known.replaced) != (stored.gaps, stored.replaced)
        saved = not is_news or await _save(partition, stored, known)
    if partition.leader_epoch > 0:
        await partition.context.catalogue.set_epoch(partition.topic, partition.number, partition.leader_epoch)


def _last(meta: Meta) -> int:
    return meta.epochs[-1].epoch if meta.epochs else 0


async def _save(partition: Partition, stored: Meta, new: Meta) -> bool:
    """Replaces the losses that were read; false if they have changed meanwhile."""
    reply = await partition.scripts.run(
        "save_losses",
        [partition.keys.meta, partition.keys.there],
        [*stored.losses, new.floor, *map(msgspec.json.encode, (new.epochs, new.gaps, new.replaced)), new.margin],
    )
    partition.check_there(reply)
    return bool(reply)
