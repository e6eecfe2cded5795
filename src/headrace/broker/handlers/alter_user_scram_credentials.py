"""AlterUserScramCredentials: sets and removes passwords, stored as verifiers (KIP-554).

The request carries the salted password, of which less is stored. All changes to a user are applied together, or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from headrace.broker.administration import duplicates, in_turn
from headrace.broker.call import Call
from headrace.broker.logins.credentials import read_mechanism, read_verifier
from headrace.security.names import LoginName, is_user_name
from headrace.security.verifiers import User
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

Row = TypeVar("Row", ScramCredentialDeletion, ScramCredentialUpsertion)


async def handle(call: Call, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    both = [(row.name, row.mechanism) for row in request.deletions]
    both += [(row.name, row.mechanism) for row in request.upsertions]
    repeated = {name for name, _ in duplicates(both)}
    deletions, upsertions = _by_name(request.deletions), _by_name(request.upsertions)
    response = AlterUserScramCredentialsResponse()
    async for name in in_turn(dict.fromkeys(name for name, _ in both)):
        result = AlterUserScramCredentialsResult(name, ErrorCode.NONE, None)
        response.results.append(result)
        try:
            if name in repeated:
                message = "A user credential cannot be altered twice in the same request"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
            await _alter(call, name, deletions.get(name, []), upsertions.get(name, []))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return response


def _by_name(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return found


async def _alter(
    call: Call, name: str, deletions: list[ScramCredentialDeletion], upsertions: list[ScramCredentialUpsertion]
) -> None:
    if not is_user_name(name):
        message = "A username has 1 to 255 characters without '/'" if name else "Username must not be empty"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    gone = [read_mechanism(row.mechanism) for row in deletions]
    new = {read_mechanism(row.mechanism): read_verifier(row) for row in upsertions}

    def change(user: User | None) -> User | None:
        user = user or User()
        if missing := [mechanism for mechanism in gone if mechanism not in user.verifiers]:
            message = f"Attempt to delete a user credential that does not exist: {missing[0]} of {name}"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        kept = {mechanism: one for mechanism, one in user.verifiers.items() if mechanism not in gone}
        return User(kept | new, user.is_super) if kept or new else None

    await call.broker.store.users.update(LoginName(call.caller.organisation, name), change)
    what = "set a password" if new else "took a password away"
    call.broker.authorizer.audit.changed(call.caller, what, user=name, mechanisms=", ".join([*new, *gone]))
