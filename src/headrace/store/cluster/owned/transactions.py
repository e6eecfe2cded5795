"""Stored transactional ids: the coordinator's decisions, and what any node adds to a transaction.

Additions are never part of the coordinator's document, so rewriting it cannot undo them. A transaction is open if the
number in `open` follows that of the last finished one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from headrace.store.cluster.owned.things import OWNER, Changes, OwnedKeys, OwnedStore, OwnershipLost, noted
from headrace.store.keys import EMBEDDED, ClusterKeys
from headrace.store.redis.errors import RedisError, StoreError
from headrace.store.redis.link import Argument
from headrace.store.redis.topology import Topology
from headrace.wire.errors import ErrorCode

GUARD = "guard"
"""The field of the document that says how many partitions and groups a write knows of; -1 if they do not matter."""
_BESIDE = frozenset((b"number", b"server", b"start"))
_VERDICTS_KEPT_MS = 7 * 24 * 3600 * 1000
_READ_AT_ONCE = 256
_PRODUCER = ("pid", "epoch", "number", "state", "marked")
_NOT_OWNER = 0
_MOVED = 2


class TxnPartition(NamedTuple):
    """A partition in a transaction."""

    topic_id: str
    number: int


class Parts(NamedTuple):
    """The partitions and groups of a transaction."""

    partitions: Sequence[TxnPartition] = ()
    groups: Sequence[str] = ()


class StoredOpen(NamedTuple):
    """The last transaction that was added to. It is open if its number follows the last one that ended."""

    number: int
    server: str
    start_ms: int
    parts: Parts


class Added(NamedTuple):
    """The result of adding to a transaction."""

    error: ErrorCode
    number: int


class StoredProducer(NamedTuple):
    """The producer of an id, and the last of its transactions that ended."""

    name: str
    producer_id: int
    epoch: int
    number: int
    state: str
    marked: str

    def is_settled(self, server: str) -> bool:
        """Whether all verdicts were spread, under this run of the servers."""
        return self.marked == server and not self.state.startswith("Prepare")


class TransactionMoved(StoreError):
    """The transaction was extended meanwhile: nothing was written, read it again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction changed meanwhile")


class TransactionStore(OwnedStore):
    """Reads and writes transactional ids."""

    def __init__(self, topology: Topology, keys: ClusterKeys) -> None:
        super().__init__(
            topology,
            OwnedKeys(
                listing=lambda org: keys.of(org).transactions,
                document=lambda org, name: keys.of(org).transaction(name),
                rows=lambda org, name: keys.of(org).transaction_rows(name),
            ),
        )
        self._all_keys = keys
        self._continued = ("", "")

    @property
    def server(self) -> str:
        """The run of all servers that answer: what was written during another one may be lost.

        Runs of the embedded server between which nothing was lost are one.
        """
        identity = self._topology.identity
        run, since = self._continued
        return blake2b((since if identity == run else identity).encode(), digest_size=8).hexdigest()

    async def load_continued(self) -> None:
        """Finds out which run of the embedded server this one continues, if any."""
        try:
            run, since = await self._call("HMGET", EMBEDDED, "run", "since")
        except RedisError as error:
            if error.passes_by_itself:
                raise
            return  # on a server of one's own, rules may forbid the key
        self._continued = ((run or b"").decode(), (since or b"").decode())

    # -- what any node does -------------------------------------------------------------------------------------

    async def add(
        self, org: str, name: str, producer: tuple[int, int], parts: Parts, now_ms: int, *, only_check: bool = False
    ) -> Added:
        """Adds partitions and groups to the open transaction, or begins one; or checks that they are in it."""
        arguments: list[Argument] = [*producer, self.server, now_ms, 0 if only_check else 1, *_fields(parts)]
        keys = self._keys_of(org, name)[::2]
        error, number = await self._topology.slot_of(keys[0]).scripts.run("add_to_transaction", keys, arguments)
        return Added(ErrorCode(error), number)

    async def opened(self, org: str, name: str) -> StoredOpen | None:
        """The open transaction of an id."""
        return _parse_open(await self._call("HGETALL", self._all_keys.of(org).open_transaction(name)))

    async def opened_many(self, org: str, names: Sequence[str]) -> list[StoredOpen | None]:
        """The same for many ids, without their partitions and groups."""
        found: list[StoredOpen | None] = []
        for at in range(0, len(names), _READ_AT_ONCE):
            keys = (self._all_keys.of(org).open_transaction(name) for name in names[at : at + _READ_AT_ONCE])
            for row in await self._topology.call_each(("HMGET", key, "number", "server", "start") for key in keys):
                known = row[0] is not None
                found.append(StoredOpen(int(row[0]), row[1].decode(), int(row[2]), Parts()) if known else None)
        return found

    async def producers(self, org: str, known: Iterable[str]) -> dict[int, StoredProducer]:
        """The producers of all ids, by producer id; also of known ones that the store no longer lists."""
        names, found = list({*await self.names(org), *known}), {}
        for at in range(0, len(names), _READ_AT_ONCE):
            part = names[at : at + _READ_AT_ONCE]
            commands = (("HMGET", self._all_keys.of(org).transaction(name), *_PRODUCER) for name in part)
            for name, row in zip(part, await self._topology.call_each(commands), strict=True):
                if (stored := _parse_producer(name, row)) is not None:
                    found[stored.producer_id] = stored
        return found

    async def producer(self, org: str, name: str) -> StoredProducer | None:
        """The producer of one id."""
        return _parse_producer(name, await self._call("HMGET", self._all_keys.of(org).transaction(name), *_PRODUCER))

    async def owner_and_state(self, org: str, name: str) -> tuple[str, str, int]:
        """An id's current owner token, its state, and the number of its last finished transaction."""
        key = self._all_keys.of(org).transaction(name)
        owner, state, number = await self._call("HMGET", key, OWNER, "state", "number")
        return (owner or b"").decode(), (state or b"").decode(), int(number or 0)

    async def verdict_on(self, org: str, name: str, producer_id: int, number: int) -> bool | None:
        """Whether a transaction was committed; None if it has not ended, False if it is unknown."""
        opened = await self.opened(org, name)
        document = await self.document(org, name)
        if not document:
            return False
        last = int(document.get("number", 0))
        if number > last:
            is_begun = opened is not None and opened.number >= number and int(document["pid"]) == producer_id
            # Once its owner has looked at the id in this run of the servers, what is not begun was forgotten.
            return None if is_begun or document["marked"] != self.server.encode() else False
        if number == last and document["state"].startswith(b"Prepare"):
            return None
        ending = msgspec.json.decode(document["rest"]).get("ending")
        is_it = bool(ending) and (ending["number"], ending["producer_id"]) == (number, producer_id)
        return bool(is_it and ending["commit"])

    async def document(self, org: str, name: str) -> dict[str, bytes]:
        """An id's document as it is stored."""
        flat = iter(await self._call("HGETALL", self._all_keys.of(org).transaction(name)))
        return {field.decode(): value for field, value in zip(flat, flat, strict=True)}

    # -- what the coordinator does ------------------------------------------------------------------------------

    async def write(self, org: str, name: str, owner: str, changes: Changes) -> None:
        """Stores changes, unless the transaction was extended since the writer read it."""
        guard = changes.fields.get(GUARD)
        expected = int(guard.split(b" ")[1]) if guard is not None else -1
        await self._write(org, name, owner, changes, expected)

    async def restore(self, org: str, name: str, owner: str, changes: Changes) -> None:
        """Writes back acknowledged state that the store has lost."""
        await self._write(org, name, owner, changes, -1)

    async def _write(self, org: str, name: str, owner: str, changes: Changes, expected: int) -> None:
        pairs: list[Argument] = []
        for field, value in changes.fields.items():
            pairs += (field, value if value is not None else b"")
        await self._run(org, name, "write_transaction", [owner, expected, *pairs])

    async def delete(self, org: str, name: str, owner: str) -> None:
        await self._run(org, name, "delete_transaction", [owner])

    async def give_verdict(self, org: str, group_id: str, producer_id: int, number: int, *, commit: bool) -> None:
        """Records a transaction's outcome for a group; the group's owner applies or drops its pending offsets."""
        field, verdict = f"{producer_id}:{number}", "commit" if commit else "abort"
        key = self._all_keys.of(org).group_verdicts(group_id)
        slot = self._topology.slot_of(key)
        place = None
        while place is None or place.timeline != slot.link.timeline:  # one that was replaced may have taken the write
            place = slot.place
            await slot.scripts.run("give_verdict", [key], [field, verdict, _VERDICTS_KEPT_MS])
        await self._topology.copied.confirm(slot, place, key)

    async def verdicts(self, org: str, group_id: str) -> dict[tuple[int, int], bool]:
        """Producer id and number of transactions that ended -> whether they were committed."""
        flat = iter(await self._call("HGETALL", self._all_keys.of(org).group_verdicts(group_id)))
        pairs = zip(flat, flat, strict=True)
        return {_verdict_key(field): verdict == b"commit" for field, verdict in pairs}

    async def forget_verdicts(self, org: str, group_id: str, seen: Iterable[tuple[int, int]]) -> None:
        """Removes verdicts that were acted on."""
        fields = [f"{producer_id}:{number}" for producer_id, number in seen]
        if fields:
            await self._call("HDEL", self._all_keys.of(org).group_verdicts(group_id), *fields)

    async def _call(self, command: str, key: str, *arguments: Argument) -> Any:
        return await self._topology.slot_of(key).link.call(command, key, *arguments)

    async def _run(self, org: str, name: str, script: str, arguments: list[Argument]) -> None:
        """A write of the owner: not on a server that it has not seen the id on."""
        keys = self._keys_of(org, name)
        slot, copied = self._topology.slot_of(keys[0]), self._topology.copied
        with noted(slot.shard):
            await copied.check(slot.shard)
            place = slot.place
            reply = await slot.scripts.run_here(script, keys, arguments)
            if reply == _NOT_OWNER:
                raise OwnershipLost(name)
            if reply == _MOVED:
                raise TransactionMoved
            await copied.confirm(slot, place, keys[0])

    def _keys_of(self, org: str, name: str) -> list[str]:
        keys = self._all_keys.of(org)
        return [keys.transaction(name), keys.transaction_rows(name), keys.open_transaction(name)]


def _fields(parts: Parts) -> list[Argument]:
    return [
        *(f"p:{place.topic_id}:{place.number}" for place in parts.partitions),
        *(f"g:{one}" for one in parts.groups),
    ]


def _parse_open(reply: Sequence[bytes]) -> StoredOpen | None:
    flat = iter(reply)
    fields = dict(zip(flat, flat, strict=True))
    if b"number" not in fields:
        return None
    partitions: list[TxnPartition] = []
    groups: list[str] = []
    for field in fields.keys() - _BESIDE:
        kind, _, rest = field.decode().partition(":")
        if kind == "g":
            groups.append(rest)
        else:
            topic_id, _, number = rest.rpartition(":")
            partitions.append(TxnPartition(topic_id, int(number)))
    parts = Parts(sorted(partitions), sorted(groups))
    return StoredOpen(int(fields[b"number"]), fields[b"server"].decode(), int(fields[b"start"]), parts)


def _parse_producer(name: str, row: Sequence[bytes | None]) -> StoredProducer | None:
    producer_id, epoch, number, state, marked = row
    if producer_id is None or epoch is None or state is None:
        return None
    return StoredProducer(
        name, int(producer_id), int(epoch), int(number or 0), state.decode(), (marked or b"").decode()
    )


def _verdict_key(field: bytes) -> tuple[int, int]:
    producer_id, _, number = field.partition(b":")
    return int(producer_id), int(number)
