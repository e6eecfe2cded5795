"""Compares a client's leader epoch with ours (KIP-320)."""

from __future__ import annotations

from headrace.store.partition.base import Partition
from headrace.wire.errors import ErrorCode, KafkaError


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Raises for an epoch that is behind or ahead; -1 means that the client does not say."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"Leader epoch {epoch} is behind {partition.leader_epoch}.")
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"Leader epoch {epoch} is ahead of {partition.leader_epoch}.")
