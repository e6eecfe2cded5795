"""Errors as one sentence with an HTTP status."""

from __future__ import annotations

from http import HTTPStatus

from headrace.client import BrokerUnreachable, UnsupportedApi
from headrace.client.errors import TEMPORARY
from headrace.client.sasl import SaslRefused
from headrace.wire.batch_errors import BatchError
from headrace.wire.errors import ErrorCode, KafkaError

_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.TOPIC_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.NON_EMPTY_GROUP: HTTPStatus.CONFLICT,
}
_SENTENCES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.NON_EMPTY_GROUP: "The group has active members: stop them first.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has active members: stop them first.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "You are not allowed to do this with this topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "You are not allowed to do this with this group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "You are not allowed to do this with this cluster.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is outside the partition's range.",
    ErrorCode.MESSAGE_TOO_LARGE: "The record is larger than the topic's max.message.bytes.",
    **{code: f"{words[0].upper()}{words[1:]}." for code, words in TEMPORARY.items()},
}


class ApiError(Exception):
    """An error response."""

    def __init__(self, status: HTTPStatus, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.code = code


def bad(sentence: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, sentence)


def as_api_error(error: Exception) -> ApiError | None:
    """The client's exception as a message for the visitor; None for a bug."""
    match error:
        case ApiError():
            return error
        case KafkaError():
            sentence = error.message or _SENTENCES.get(error.code) or error.code.name
            otherwise = HTTPStatus.SERVICE_UNAVAILABLE if error.code in TEMPORARY else HTTPStatus.BAD_REQUEST
            return ApiError(_STATUS.get(error.code, otherwise), sentence, error.code.name)
        case SaslRefused():
            return ApiError(HTTPStatus.UNAUTHORIZED, str(error), "SASL_AUTHENTICATION_FAILED")
        case BrokerUnreachable():
            return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), "UNREACHABLE")
        case UnsupportedApi():
            return ApiError(HTTPStatus.NOT_IMPLEMENTED, str(error), "UNSUPPORTED_VERSION")
        case BatchError():
            return ApiError(HTTPStatus.BAD_GATEWAY, f"A batch cannot be read: {error}", "CORRUPT_MESSAGE")
    return None
