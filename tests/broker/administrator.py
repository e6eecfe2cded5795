"""Administrative requests over one connection, in any version: what the tests of these APIs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.client.connection import BrokerConnection
from headrace.wire.apis import APIS
from headrace.wire.messages.alter_configs import AlterableConfig as ReplacingConfig
from headrace.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from headrace.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from headrace.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
FROM_TOPIC, FROM_SETTING, FROM_DEFAULT = 1, 4, 5

Outcome = tuple[int, str | None]
"""Error code and message."""


def versions(api_key: int) -> range:
    """All versions of an API."""
    return range(APIS[api_key].oldest, APIS[api_key].newest + 1)


def new_topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, list[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        factor,
        [CreatableReplicaAssignment(number, nodes) for number, nodes in (assignments or {}).items()],
        [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
    )


class Administrator:
    """One connection, and requests by hand."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection

    def create_all(
        self, topics: Sequence[CreatableTopic], version: int = 7, validate_only: bool = False
    ) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(list(topics), 5_000, validate_only)
        return self.connection.send_for(request, CreateTopicsResponse, version).topics

    def create(
        self, topic: CreatableTopic | str, version: int = 7, validate_only: bool = False
    ) -> CreatableTopicResult:
        asked = new_topic(topic) if isinstance(topic, str) else topic
        (result,) = self.create_all([asked], version, validate_only)
        return result

    def add_partitions(
        self,
        topic: str,
        count: int,
        version: int = 3,
        assignments: list[list[int]] | None = None,
        validate_only: bool = False,
    ) -> Outcome:
        rows = None if assignments is None else [CreatePartitionsAssignment(nodes) for nodes in assignments]
        request = CreatePartitionsRequest([CreatePartitionsTopic(topic, count, rows)], 5_000, validate_only)
        (result,) = self.connection.send_for(request, CreatePartitionsResponse, version).results
        return result.error_code, result.error_message

    def describe(
        self,
        name: str,
        keys: list[str] | None = None,
        resource_type: int = TOPIC,
        version: int = 4,
        synonyms: bool = True,
        documentation: bool = True,
    ) -> DescribeConfigsResult:
        request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, keys)], synonyms, documentation)
        (result,) = self.connection.send_for(request, DescribeConfigsResponse, version).results
        return result

    def config(self, topic: str, key: str) -> DescribeConfigsResourceResult:
        (found,) = self.describe(topic, [key]).configs
        return found

    def own_configs(self, topic: str) -> dict[str, str | None]:
        """The configs that the topic sets itself."""
        return {c.name: c.value for c in self.describe(topic).configs if c.config_source == FROM_TOPIC}

    def replace(
        self,
        name: str,
        configs: Mapping[str, str | None],
        resource_type: int = TOPIC,
        version: int = 2,
        validate_only: bool = False,
    ) -> Outcome:
        rows = [ReplacingConfig(key, value) for key, value in configs.items()]
        request = AlterConfigsRequest([ReplacedResource(resource_type, name, rows)], validate_only)
        (result,) = self.connection.send_for(request, AlterConfigsResponse, version).responses
        return result.error_code, result.error_message

    def alter(
        self,
        name: str,
        changes: Sequence[tuple[str, int, str | None]],
        resource_type: int = TOPIC,
        version: int = 1,
        validate_only: bool = False,
    ) -> Outcome:
        rows = [AlterableConfig(*change) for change in changes]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, rows)], validate_only)
        (result,) = self.connection.send_for(request, IncrementalAlterConfigsResponse, version).responses
        return result.error_code, result.error_message

    def delete_records(self, topic: str, partition: int, offset: int, version: int = 2) -> tuple[int, int]:
        """Error code and low watermark."""
        rows = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])]
        answer = self.connection.send_for(DeleteRecordsRequest(rows, 5_000), DeleteRecordsResponse, version)
        (result,) = answer.topics[0].partitions
        return result.error_code, result.low_watermark
