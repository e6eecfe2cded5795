"""Kafka's topic-partition, for every room that uses it as a key."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""The topic's name and the partition's number."""
