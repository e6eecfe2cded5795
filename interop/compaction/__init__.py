"""Compaction beside Apache Kafka's log cleaner: the same batches in, the same batches left."""
