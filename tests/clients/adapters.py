"""The clients that the tests run with."""

from __future__ import annotations

from tests.clients.aiokafka_adapter import AioKafka
from tests.clients.client import Client
from tests.clients.confluent_adapter import ConfluentKafka
from tests.clients.kafka_python_adapter import KafkaPython

CLIENTS: tuple[Client, ...] = (ConfluentKafka(), KafkaPython(), AioKafka())
