"""DescribeClientQuotas: the quotas of the caller's organisation that match a filter (KIP-546)."""

from __future__ import annotations

from headrace.broker.administration import message_of
from headrace.broker.call import Call
from headrace.broker.quotas.requests import QuotaFilter
from headrace.security.acls import Operation
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


async def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        wanted = QuotaFilter(request.components, request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=message_of(error), entries=None)
    table = await call.quotas(Operation.DESCRIBE_CONFIGS)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                [EntityData(kind, name) for kind, name in entity],
                [ValueData(key, value) for key, value in sorted(values.items())],
            )
            for entity, values in table.items()
            if wanted.matches(entity)
        ],
    )
