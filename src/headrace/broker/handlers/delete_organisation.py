"""DeleteOrganisation: deletes an empty organisation, with its users, ACLs and quotas."""

from __future__ import annotations

from headrace.broker.administration import message_of
from headrace.broker.call import Call
from headrace.broker.rights.organisations import Organisations
from headrace.security.acls import Operation
from headrace.wire.errors import KafkaError
from headrace.wire.private.delete_organisation import DeleteOrganisationRequest, DeleteOrganisationResponse


async def handle(call: Call, request: DeleteOrganisationRequest) -> DeleteOrganisationResponse:
    organisations = Organisations(call, Operation.ALTER)
    try:
        await organisations.delete(request.name)
    except KafkaError as error:
        return DeleteOrganisationResponse(error_code=error.code, error_message=message_of(error))
    return DeleteOrganisationResponse()
