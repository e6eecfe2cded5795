"""AlterOrganisation: creates an organisation, or changes its limits; -1 removes a limit."""

from __future__ import annotations

from headrace.broker.administration import message_of
from headrace.broker.call import Call
from headrace.broker.logins.credentials import read_mechanism, read_verifier
from headrace.broker.rights.organisations import Organisations
from headrace.security.acls import Operation
from headrace.security.names import is_user_name
from headrace.security.verifiers import Verifier
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.private.alter_organisation import AlterOrganisationRequest, AlterOrganisationResponse


async def handle(call: Call, request: AlterOrganisationRequest) -> AlterOrganisationResponse:
    organisations = Organisations(call, Operation.ALTER)
    try:
        changes = {limit.key: limit.value for limit in request.limits}
        administrators = _administrators(request)
        await organisations.put(request.name, changes, create=request.create)
        for name, verifiers in administrators.items():
            await organisations.add_administrator(request.name, name, verifiers)
    except KafkaError as error:
        return AlterOrganisationResponse(error_code=error.code, error_message=message_of(error))
    return AlterOrganisationResponse()


def _administrators(request: AlterOrganisationRequest) -> dict[str, dict[str, Verifier]]:
    found: dict[str, dict[str, Verifier]] = {}
    for row in request.administrators:
        if not is_user_name(row.name):
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A username has 1 to 255 characters without '/'")
        found.setdefault(row.name, {})[read_mechanism(row.mechanism)] = read_verifier(row)
    return found
