"""DeleteTopics: by name or by id."""

from __future__ import annotations

from headrace.broker.administration import duplicates, in_turn, message_of, tell_nodes
from headrace.broker.call import Call
from headrace.broker.rights.asking import NotAuthorized, OnCluster
from headrace.security.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.store.cluster.catalogue import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.wire.schema import ZERO_UUID

_IDS_SINCE = 6
_DISABLED_SINCE = 3


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics if call.version >= _IDS_SINCE else [DeleteTopicState(name) for name in request.topic_names]
    repeated = duplicates(_identity(state) for state in asked)
    await call.look_again()
    version = call.topics_version
    response = DeleteTopicsResponse()
    async for state in in_turn({_identity(state): state for state in asked}.values()):
        topic: Topic | None = None
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        response.responses.append(result)
        try:
            topic = await _find(call, state, _identity(state) in repeated)
            call.check_delete_topic(topic.name)
            result.name, result.topic_id = topic.name, topic.uuid
            await call.delete_topic(topic)
        except NotAuthorized as error:
            if topic is not None and call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                result.name = topic.name
            result.error_code, result.error_message = error.code, message_of(error)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    await tell_nodes(call, version)
    return response


def _identity(state: DeleteTopicState) -> tuple[str | None, bytes]:
    return state.name, state.topic_id


async def _find(call: Call, state: DeleteTopicState, is_repeated: bool) -> Topic:
    """The topic to delete, or Kafka's error."""
    by_id = state.topic_id != ZERO_UUID
    if not call.broker.options.delete_topics_enabled:
        if call.version < _DISABLED_SINCE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if state.name is None and not by_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if state.name is not None and by_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if is_repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if by_id else 'name'}.")
    may_delete_all = call.may(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME)
    ask = OnCluster(Operation.DELETE) if may_delete_all else Operation.DESCRIBE
    return await call.topic(ask, state.name or "", state.topic_id, by_id=by_id)
