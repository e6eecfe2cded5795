"""WriteTxnMarkers: ends a producer's open transactions in partitions, whatever its transactional id's state (KIP-664).

Brokers of Apache Kafka send it to each other. Here it is for operators who find a hanging transaction.
"""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import OnCluster
from headrace.security.acls import Operation
from headrace.store.partition.sequences.verification import Verification, moment_of
from headrace.wire.batch import read_header
from headrace.wire.control import EndMarker, end_marker
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_EPOCH_RISES_SINCE = 2


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        result = WritableTxnMarkerResult(marker.producer_id, [])
        response.markers.append(result)
        for topic in marker.topics:
            rows = [
                WritableTxnMarkerPartitionResult(number, await _write(call, marker, topic.name, number))
                for number in topic.partition_indexes
            ]
            result.topics.append(WritableTxnMarkerTopicResult(topic.name, rows))
    return response


async def _write(call: Call, asked: WritableTxnMarker, name: str, number: int) -> ErrorCode:
    marker = EndMarker(asked.transaction_result, asked.coordinator_epoch)
    try:
        topic = await call.topic(OnCluster(Operation.CLUSTER_ACTION), name)
        partition = await call.led_partition(topic, number)
        if topic.is_stream:
            raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        await partition.confirm()
        verification = Verification(_wanted, marker=marker, exceeds=asked.transaction_version >= _EPOCH_RISES_SINCE)
        verification.answered(moment_of(partition, asked.producer_id))
        now_ms = call.broker.store.clock.wall_ms()
        batch = end_marker(marker, asked.producer_id, asked.producer_epoch, now_ms)
        timeout_s = call.broker.options.store_wait_ms / 1000
        await partition.writer.submit(
            memoryview(bytearray(batch)), read_header(batch), timeout_s, verification=verification
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def _wanted() -> None:
    """Only this node is asked."""
