"""DescribeUserScramCredentials: the users of the caller's organisation and their mechanisms (KIP-554)."""

from __future__ import annotations

from headrace.broker.administration import duplicates
from headrace.broker.call import Call
from headrace.security.verifiers import NUMBERS, User
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(call: Call, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    users = call.broker.store.users.of(call.caller.organisation)
    names = [user.name for user in request.users or []] or list(users)
    repeated = duplicates(names)
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[_result(name, name in repeated, users.get(name)) for name in sorted(set(names))],
    )


def _result(name: str, is_repeated: bool, user: User | None) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
    if user is None or not user.verifiers:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    infos = [
        CredentialInfo(number, user.verifiers[mechanism].iterations)
        for number, mechanism in NUMBERS.items()
        if mechanism in user.verifiers
    ]
    return DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, infos)
