"""The same requests about transactions to Headrace and to Apache Kafka, and their answers compared."""
