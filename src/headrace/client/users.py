"""Users and their SCRAM credentials, as set by administrators (KIP-554).

The password never leaves this process: the broker gets it salted and hashed.
"""

from __future__ import annotations

import hashlib
import secrets

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.connection import check
from headrace.client.sasl import HASHES
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
DEFAULT_ITERATIONS = 8_192
_SALT_BYTES = 20


class UserInfo(msgspec.Struct, frozen=True):
    """A user, with the iterations of each of its mechanisms."""

    name: str
    mechanisms: dict[str, int]


class UserAdmin:
    """The users of the caller's organisation."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def list_users(self) -> list[UserInfo]:
        """All users, by name."""
        return self._describe(None)

    def find(self, name: str) -> UserInfo | None:
        """One user; None if it does not exist."""
        found = self._describe([UserName(name)])
        return found[0] if found else None

    def set_password(
        self, name: str, password: str, mechanisms: list[str], iterations: int = DEFAULT_ITERATIONS
    ) -> None:
        """Creates the user, or changes its password for these mechanisms."""
        self._alter(
            AlterUserScramCredentialsRequest([], [credential(name, password, m, iterations) for m in mechanisms])
        )

    def delete(self, user: UserInfo) -> None:
        """Deletes a user with all its credentials."""
        rows = [ScramCredentialDeletion(user.name, NUMBERS[mechanism]) for mechanism in user.mechanisms]
        self._alter(AlterUserScramCredentialsRequest(rows, []))

    def _describe(self, names: list[UserName] | None) -> list[UserInfo]:
        request = DescribeUserScramCredentialsRequest(names)
        of_number = {number: mechanism for mechanism, number in NUMBERS.items()}

        def attempt() -> list[UserInfo]:
            answer = self.cluster.controller().send_for(request, DescribeUserScramCredentialsResponse)
            check(answer.error_code, answer.error_message)
            found = []
            for row in answer.results:
                if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                    continue
                check(row.error_code, row.error_message)
                infos = {of_number[info.mechanism]: info.iterations for info in row.credential_infos}
                found.append(UserInfo(row.user, infos))
            return sorted(found, key=lambda user: user.name)

        return self.cluster.retrying(attempt)

    def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        def attempt() -> None:
            answer = self.cluster.controller().send_for(request, AlterUserScramCredentialsResponse)
            for row in answer.results:
                check(row.error_code, row.error_message)

        self.cluster.retrying(attempt)


def credential(name: str, password: str, mechanism: str, iterations: int) -> ScramCredentialUpsertion:
    """A salted and hashed password, for a request."""
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return ScramCredentialUpsertion(name, NUMBERS[mechanism], iterations, salt, salted)
