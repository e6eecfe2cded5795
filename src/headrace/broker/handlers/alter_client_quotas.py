"""AlterClientQuotas: changes the quotas of each entity, or rejects them with the reason, independently (KIP-546)."""

from __future__ import annotations

from headrace.broker.administration import in_turn, message_of
from headrace.broker.call import Call
from headrace.broker.quotas.requests import changed_values, read_entity
from headrace.security.quotas import Entity
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataResult,
    EntryData,
    EntryDataResult,
)


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()
    seen: set[Entity] = set()
    async for entry in in_turn(request.entries):
        result = EntryDataResult(
            error_message=None, entity=[EntityDataResult(part.entity_type, part.entity_name) for part in entry.entity]
        )
        response.entries.append(result)
        try:
            await _alter(call, entry, seen, request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    return response


async def _alter(call: Call, entry: EntryData, seen: set[Entity], validate_only: bool) -> None:
    entity = read_entity(entry.entity)
    if entity in seen:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {entity}")
    seen.add(entity)
    await call.change_quotas(
        entity, lambda present: changed_values(entity, present, entry.ops), validate_only=validate_only
    )
