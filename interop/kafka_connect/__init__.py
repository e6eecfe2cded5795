"""Kafka Connect with exactly-once sources."""
