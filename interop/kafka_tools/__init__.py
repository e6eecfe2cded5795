"""Kafka's own command line (kafka-topics, kafka-consumer-groups, ...), which many administrators live in."""
