"""Transactional ids for administrators: list, describe, and end hanging transactions.

Separate from `admin.py` because other brokers answer: each id has a coordinator, each partition a leader.
"""

from __future__ import annotations

import msgspec

from headrace.client.cluster import COORDINATOR_OF_TRANSACTIONS, Cluster, by_topic
from headrace.client.connection import BrokerConnection, check
from headrace.client.errors import RetriableError
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.wire.topic_partition import TopicPartition

_NOTHING_OPEN = -1


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str


class OpenTransaction(msgspec.Struct, frozen=True):
    """A producer's open transaction in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_ms: int


class Transactions:
    """The transactional ids of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def listed(self) -> list[TransactionListing]:
        """All transactional ids, by name."""
        found, missing = self.known()
        for error in missing.values():
            raise error
        return found

    def known(self) -> tuple[list[TransactionListing], dict[int, KafkaError]]:
        """Those that are known now, and the errors of brokers that may have more."""
        found: dict[str, TransactionListing] = {}

        def ask(connection: BrokerConnection) -> int:
            answer = connection.send_for(ListTransactionsRequest(), ListTransactionsResponse)
            for one in answer.transaction_states:
                listing = TransactionListing(one.transactional_id, one.producer_id, one.transaction_state)
                found[one.transactional_id] = listing
            return answer.error_code

        missing = self._cluster.ask_all(ask)
        return [found[name] for name in sorted(found)], missing

    def described(self, name: str) -> TransactionState:
        """One transactional id; raises TRANSACTIONAL_ID_NOT_FOUND."""

        def attempt() -> TransactionState:
            coordinator = self._cluster.coordinator(name, COORDINATOR_OF_TRANSACTIONS)
            answer = coordinator.send_for(DescribeTransactionsRequest([name]), DescribeTransactionsResponse)
            check(answer.transaction_states[0].error_code)
            return answer.transaction_states[0]

        return self._cluster.retrying(attempt)

    def fence(self, name: str, timeout_ms: int) -> None:
        """Claims the id like a starting producer: aborts its open transaction and fences its producer."""

        def attempt() -> None:
            coordinator = self._cluster.coordinator(name, COORDINATOR_OF_TRANSACTIONS)
            request = InitProducerIdRequest(name, timeout_ms)
            answer = coordinator.send_for(request, InitProducerIdResponse)
            if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                raise RetriableError(ErrorCode.CONCURRENT_TRANSACTIONS)
            check(answer.error_code)

        self._cluster.retrying(attempt)

    def opened(self, partitions: list[TopicPartition]) -> list[OpenTransaction]:
        """Open transactions in partitions, as their leaders see them."""
        found: list[OpenTransaction] = []
        for node_id, led in self._cluster.requests(partitions):
            topics = [TopicRequest(name, numbers) for name, numbers in by_topic(led).items()]
            answer = self._cluster.node(node_id).send_for(DescribeProducersRequest(topics), DescribeProducersResponse)
            for topic in answer.topics:
                for row in topic.partitions:
                    check(row.error_code, row.error_message)
                    found += (
                        OpenTransaction(
                            topic.name,
                            row.partition_index,
                            one.producer_id,
                            one.producer_epoch,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                            one.last_timestamp,
                        )
                        for one in row.active_producers
                        if one.current_txn_start_offset != _NOTHING_OPEN
                    )
        return found

    def abort(self, opened: OpenTransaction) -> None:
        """Aborts a producer's open transaction in one partition, whatever the state of its transactional id."""
        marker = WritableTxnMarker(
            opened.producer_id,
            opened.producer_epoch,
            False,
            [WritableTxnMarkerTopic(opened.topic, [opened.partition])],
            max(opened.coordinator_epoch, 0),
        )
        (node_id,) = self._cluster.by_leader([(opened.topic, opened.partition)])
        answer = self._cluster.node(node_id).send_for(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
        check(ErrorCode(answer.markers[0].topics[0].partitions[0].error_code))
