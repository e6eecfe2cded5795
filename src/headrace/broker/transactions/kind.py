"""Transactional ids as a kind of owned state: how one is stored."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.broker.groups.kind import coordinator_error
from headrace.broker.owned.contract import Name
from headrace.store.cluster.owned.transactions import TransactionMoved
from headrace.transactions.events import Answered
from headrace.transactions.machine import TransactionMachine
from headrace.transactions.state import TransactionalId, pack, unpack
from headrace.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

MOVED: Final = Answered(ErrorCode.CONCURRENT_TRANSACTIONS, -2)
"""Somebody added to the transaction while its end was decided: to be asked again."""


class TransactionKind:
    """Transactional ids. They have no rows and claim no names."""

    title = "transaction"

    def machine(self, name: Name) -> TransactionMachine:
        return TransactionMachine(name.id)

    def refusal(self, event: Any, error: KafkaError) -> Any:
        return MOVED if isinstance(error, TransactionMoved) else Answered(coordinator_error(error))

    def pack_field(self, field: str, value: Any) -> bytes:
        return pack(value)

    def unpack_field(self, field: str, raw: bytes) -> Any:
        return unpack(field, raw)

    def row_field(self, row: Any) -> str:
        return str(row)

    def pack_row(self, value: Any) -> bytes:
        return bytes(value)

    def unpack_row(self, field: str, raw: bytes) -> tuple[Any, Any]:
        return field, raw

    def is_recent(self, value: Any) -> bool:
        return False

    def is_newer(self, value: Any, than: Any) -> bool:
        return False

    def claimed(self, state: TransactionalId) -> str | None:
        return None

    async def claim(self, name: Name, claimed: str) -> bool:
        return True

    async def give_back(self, name: Name, claimed: str) -> None:
        return

    async def before_rows_go(self, name: Name, rows: Iterable[Any]) -> None:
        return

    def rows_stored(self, name: Name, rows: Mapping[Any, Any]) -> None:
        return

    def buried(self, name: Name, rows: Mapping[Any, Any]) -> None:
        return
