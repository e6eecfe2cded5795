"""A small blocking Kafka client over `wire`: for the command line, for tests, and for reading batches as they are.

It is not a general client, and the well-kept ones (confluent-kafka, kafka-python, aiokafka) remain the right choice
for applications. It exists beside them for what they do not offer: any version of any API, record batches handed out
as they came, every config with its source and whether it may be changed, and no dependency of its own. It has no
consumer groups, no transactions and no thread: each call blocks until it is answered or its deadline has passed.

`BrokerConnection` speaks to one broker, `Cluster` finds the right one and tries again, `Admin`, `Groups`,
`Transactions`, `Producer` and `Reader` are what one does with a cluster.
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
