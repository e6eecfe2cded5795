"""Spark's own Kafka connector and delta-spark: what pipelines that never heard of Headrace are built with."""
