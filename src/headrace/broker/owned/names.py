"""Where a thing is noted beside its document: the list of its kind, and what it has claimed.

These may be on a server that is away while the thing's own is well, so they are written again only if they may be lost.
"""

from __future__ import annotations

from typing import Generic

from headrace.broker.owned.contract import Kind, Name, State
from headrace.store.cluster.owned.things import OwnedStore


class Names(Generic[State]):
    """The notes about one thing."""

    def __init__(self, name: Name, kind: Kind[State], store: OwnedStore) -> None:
        self._name, self._kind, self._store = name, kind, store
        self._noted = self._listed = self._timeline
        """Of the servers that have the notes, when all of them, and the first, were known to be there."""
        self._are_sure = False

    @property
    def _timeline(self) -> tuple[int, ...]:
        return self._store.registers_timeline(self._name.org)

    async def list_again(self, owner: str, *, is_known: bool) -> None:
        """Before the thing is taken again. Nothing to do if it is still ours, on servers that did not change."""
        self._listed = self._timeline
        self._are_sure = is_known and self._listed == self._noted and await self._store.is_owner(*self._name, owner)
        if not self._are_sure:
            await self._store.enlist(*self._name)

    async def claim_again(self, state: State | None) -> None:
        """Once the thing is taken."""
        claimed = self._kind.claimed(state) if state is not None else None
        if claimed is not None and not self._are_sure:
            await self._kind.claim(self._name, claimed)
        self._noted = self._listed
