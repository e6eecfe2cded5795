"""APIs of features that are not there: a clear error in every version, and the connection goes on."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.apis import APIS, request_class
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from headrace.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from headrace.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from headrace.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from headrace.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from headrace.wire.messages.share_group_describe import ShareGroupDescribeRequest
from headrace.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from headrace.wire.schema import Payload
from tests.broker.administrator import Administrator, versions
from tests.broker.peers import metadata

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
REFUSED = {
    17: (ErrorCode.ILLEGAL_SASL_STATE, ""),
    36: (ErrorCode.ILLEGAL_SASL_STATE, "SASL"),
    38: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    39: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    40: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    41: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ""),
    55: (UNSUPPORTED, "quorum"),
    64: (UNSUPPORTED, "registered"),
    68: (UNSUPPORTED, "group.protocol=classic"),
    76: (UNSUPPORTED, "share groups"),
    78: (UNSUPPORTED, "share groups"),
    79: (UNSUPPORTED, "share groups"),
    80: (UNSUPPORTED, "quorum"),
    81: (UNSUPPORTED, "quorum"),
    88: (UNSUPPORTED, "group.protocol=classic"),
    91: (UNSUPPORTED, "share groups"),
    92: (UNSUPPORTED, "share groups"),
}
MESSAGE_SINCE = {55: 2}


@pytest.mark.parametrize("key", REFUSED, ids=lambda key: APIS[key].name)
def test_a_feature_that_is_not_there_is_refused_in_every_version(administrator: Administrator, key: int) -> None:
    code, words = REFUSED[key]
    for version in versions(key):
        answer: Any = administrator.connection.send(request_class(key)(), version)
        assert answer.error_code == code
        if hasattr(answer, "error_message") and version >= MESSAGE_SINCE.get(key, 0):
            assert words in answer.error_message
    assert metadata(administrator.connection).brokers


@pytest.mark.parametrize("version", versions(29))
def test_acls_need_an_authorizer(administrator: Administrator, version: int) -> None:
    connection = administrator.connection
    described = connection.send_for(DescribeAclsRequest(1, None, 1, None, None, 1, 1), DescribeAclsResponse, version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert described.error_message == "No Authorizer is configured on the broker"
    request = CreateAclsRequest([AclCreation(2, "x", 3, "User:a", "*", 3, 3)] * 2)
    created = connection.send_for(request, CreateAclsResponse, version)
    assert [row.error_code for row in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    filters = [DeleteAclsFilter(2, "x", 3, "User:a", "*", 3, 3)] * 2
    deleted = connection.send_for(DeleteAclsRequest(filters), DeleteAclsResponse, version)
    assert [(row.error_code, row.matching_acls) for row in deleted.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, [])
    ] * 2


@pytest.mark.parametrize("version", versions(48))
def test_there_are_no_quotas(administrator: Administrator, version: int) -> None:
    connection = administrator.connection
    for components, code, entries in (
        ([], 0, []),
        ([ComponentData("user", 0, "a"), ComponentData("client-id", 2, None)], 0, []),
        ([ComponentData("cat", 0, "a")], UNSUPPORTED, None),
        ([ComponentData("ip", 7, "a")], ErrorCode.INVALID_REQUEST, None),
    ):
        request = DescribeClientQuotasRequest(components)
        found = connection.send_for(request, DescribeClientQuotasResponse, version)
        assert (found.error_code, found.entries) == (code, entries)


def test_users_that_are_not_there_have_no_scram_credentials(administrator: Administrator) -> None:
    connection = administrator.connection
    everybody = DescribeUserScramCredentialsRequest(None)
    found = connection.send_for(everybody, DescribeUserScramCredentialsResponse)
    assert (found.error_code, found.results) == (0, [])
    asked = DescribeUserScramCredentialsRequest([UserName("a"), UserName("b"), UserName("b")])
    found = connection.send_for(asked, DescribeUserScramCredentialsResponse)
    assert [(row.user, row.error_code) for row in found.results] == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.DUPLICATE_RESOURCE),
    ]
    change = AlterUserScramCredentialsRequest([ScramCredentialDeletion("a", 1)], [ScramCredentialUpsertion("b", 1)])
    refused = connection.send_for(change, AlterUserScramCredentialsResponse)
    assert [(row.user, row.error_code) for row in refused.results] == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ]


def test_the_quorum_is_refused_with_a_reason(administrator: Administrator) -> None:
    found = administrator.connection.send_for(DescribeQuorumRequest(), DescribeQuorumResponse)
    assert (found.error_code, found.error_message) == (
        UNSUPPORTED,
        "This broker keeps its metadata in Redis; there is no controller quorum.",
    )


@pytest.mark.parametrize(
    "request_of", [ConsumerGroupDescribeRequest, ShareGroupDescribeRequest, StreamsGroupDescribeRequest]
)
def test_no_group_is_of_a_newer_type(administrator: Administrator, request_of: Any) -> None:
    """Admin clients go on to DescribeGroups then."""
    request: Payload = request_of(["billing", ""])
    for version in versions(request.api.key):
        answer: Any = administrator.connection.send(request, version)
        assert [(row.group_id, row.error_code, row.error_message) for row in answer.groups] == [
            ("billing", ErrorCode.GROUP_ID_NOT_FOUND, "Group billing not found."),
            ("", ErrorCode.INVALID_GROUP_ID, None),
        ]


def test_share_groups_have_no_offsets(administrator: Administrator) -> None:
    for version in versions(90):
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("queue", None)])
        answer = administrator.connection.send_for(request, DescribeShareGroupOffsetsResponse, version)
        assert [(row.group_id, row.error_code, row.topics) for row in answer.groups] == [("queue", 0, [])]
