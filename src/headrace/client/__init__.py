"""A small blocking Kafka client over `wire`: for the command line, for tests, and for reading batches as they are.

It is not a general client: for applications, the established ones (confluent-kafka, kafka-python, aiokafka) remain the
right choice. It offers what they do not: any version of any API, raw record batches, every config with its source and
whether it is read-only, and no dependencies. It has no consumer groups, no transactions and no threads: each call
blocks until its response arrives or its deadline passes.

`BrokerConnection` speaks to one broker; `Cluster` finds the right broker and retries; `Admin`, `Groups`,
`Transactions`, `Producer` and `Reader` are built on a cluster.
"""

from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.connection import BrokerConnection
from headrace.client.errors import BrokerUnreachable, UnsupportedApi
from headrace.client.groups import Groups
from headrace.client.producer import Producer
from headrace.client.reader import Reader
from headrace.client.transactions import Transactions

__all__ = [
    "Admin",
    "BrokerConnection",
    "BrokerUnreachable",
    "Cluster",
    "Groups",
    "Producer",
    "Reader",
    "Transactions",
    "UnsupportedApi",
]
