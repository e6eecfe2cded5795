"""What Kafka calls a topic-partition, for every room that keys things by it."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""The topic's name and the partition's number."""
