"""SCRAM credentials in requests: the verifier to store, or why there is none (KIP-554)."""

from __future__ import annotations

import hashlib

from headrace.security.verifiers import (
    HASHES,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    NUMBERS,
    Verifier,
    verifier_of,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion

_SALT_MAX_BYTES = 1_024


def read_mechanism(number: int) -> str:
    if number not in NUMBERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return NUMBERS[number]


def read_verifier(row: ScramCredentialUpsertion) -> Verifier:
    mechanism = read_mechanism(row.mechanism)
    if not LEAST_ITERATIONS <= row.iterations <= MOST_ITERATIONS:
        few_or_many = "few" if row.iterations < LEAST_ITERATIONS else "many"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {few_or_many} iterations")
    salt, salted = bytes(row.salt), bytes(row.salted_password)
    if not 0 < len(salt) <= _SALT_MAX_BYTES or len(salted) != hashlib.new(HASHES[mechanism]).digest_size:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt or the salted password has a wrong length")
    return verifier_of(mechanism, salted, salt, row.iterations)
