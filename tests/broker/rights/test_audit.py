"""The audit log tells which administrator changed what."""

from __future__ import annotations

import logging

import pytest

from headrace.broker.broker import Broker
from headrace.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.rights.caller import Client


async def test_what_an_administrator_changes_has_a_line_in_the_audit_log(
    strict: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.audit")
    root = Client(strict, "root")
    config = IncrementalAlterConfigsRequest
    for request in (
        CreateTopicsRequest([CreatableTopic("orders", 1, 1)]),
        CreatePartitionsRequest([CreatePartitionsTopic("orders", 2, None)]),
        config([AlterConfigsResource(2, "orders", [AlterableConfig("retention.ms", 0, "1000")])]),
        config([AlterConfigsResource(4, "", [AlterableConfig("message.max.bytes", 0, "100000")])]),
        DeleteTopicsRequest([DeleteTopicState("orders")]),
    ):
        assert await root.codes(request) == {0}, request
    assert {record.__dict__["principal"] for record in caplog.records} == {"User:root"}
    assert [record.__dict__["what"] for record in caplog.records] == [
        "created a topic", "added partitions", "changed configs", "changed configs", "deleted a topic",
    ]  # fmt: skip
