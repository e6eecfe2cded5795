"""Kafka Streams with exactly_once_v2."""
