"""Every endpoint that queries the cluster. Logins, events and downloads are in app.py."""

from __future__ import annotations

from headrace.console.api.groups import GroupList, GroupShown, delete_group, list_groups, show_group
from headrace.console.api.messages import MessagePiece, NewMessage, SentMessage, read_messages, send_message
from headrace.console.api.nodes import NodeConfigs, NodesShown, show_node_configs, show_nodes
from headrace.console.api.overview import Overview, show_overview
from headrace.console.api.resets import ResetOrder, ResetShown, reset_offsets
from headrace.console.api.security import SecurityShown, show_security
from headrace.console.api.tiered import LakeShown, StreamsShown, show_lake, show_streams
from headrace.console.api.topic_changes import (
    ConfigChanges,
    MorePartitions,
    NewTopic,
    RecordsBefore,
    add_partitions,
    alter_configs,
    create_topic,
    delete_records,
    delete_topic,
)
from headrace.console.api.topics import TopicList, TopicShown, list_topics, show_topic
from headrace.console.endpoints import ApiEndpoint, Done, Param

_SEARCH = Param("search", "string", "Only names that contain this text.")
_PAGE = Param("page", "integer", "Page of the list, from 1.")
_CONFIRM = Param("confirm", "string", "The name again, as confirmation.", required=True)
_GROUP = Param("group", "string", "Name of the group.", required=True)

MESSAGE_PARAMS = (
    Param("from", "string", "newest (default), oldest, end, offset or time."),
    Param("offset", "integer", "First offset, with from=offset."),
    Param("time", "integer", "Start time in milliseconds since 1970, with from=time."),
    Param("partition", "integer", "Only this partition; default: all."),
    Param("limit", "integer", "Maximum number of messages, up to 200."),
    Param("search", "string", "Only messages that contain this text."),
    Param("in", "string", "Where to search: key, value and headers, separated by commas."),
    Param("exact_case", "boolean", "Match case."),
    Param("cursor", "string", "Cursor of the previous page."),
    Param("wait_ms", "integer", "How long to wait for new messages at the end, in milliseconds, up to 5000."),
)

ENDPOINTS = (
    ApiEndpoint("GET", "/overview", "Health, rates, and possible data loss in a crash.", show_overview, Overview),
    ApiEndpoint(
        "GET", "/topics", "A page of the topics.", list_topics, TopicList,
        (_SEARCH, _PAGE, Param("internal", "boolean", "Include internal topics.")),
    ),
    ApiEndpoint("POST", "/topics", "Create a topic.", create_topic, Done, body=NewTopic, changes=True),
    ApiEndpoint("GET", "/topics/{topic}", "A topic with its partitions and configs.", show_topic, TopicShown),
    ApiEndpoint(
        "DELETE", "/topics/{topic}", "Delete a topic with its records.", delete_topic, Done, (_CONFIRM,), changes=True
    ),
    ApiEndpoint(
        "POST", "/topics/{topic}/configs", "Change configs of a topic.", alter_configs, Done, body=ConfigChanges,
        changes=True,
    ),
    ApiEndpoint(
        "POST", "/topics/{topic}/partitions", "Add partitions.", add_partitions, Done,
        body=MorePartitions, changes=True,
    ),
    ApiEndpoint(
        "POST", "/topics/{topic}/delete-records", "Delete records before the given offsets.", delete_records, Done,
        (_CONFIRM,), RecordsBefore, changes=True,
    ),
    ApiEndpoint(
        "GET", "/topics/{topic}/messages", "A page of messages, and its cursor.", read_messages, MessagePiece,
        MESSAGE_PARAMS,
    ),
    ApiEndpoint(
        "POST", "/topics/{topic}/messages", "Send a message.", send_message, SentMessage, body=NewMessage, changes=True
    ),
    ApiEndpoint(
        "GET", "/groups", "A page of the groups.", list_groups, GroupList,
        (_SEARCH, _PAGE, Param("state", "string", "Only groups in this state.")),
    ),
    ApiEndpoint("GET", "/groups/detail", "A group with its members and lag.", show_group, GroupShown, (_GROUP,)),
    ApiEndpoint("DELETE", "/groups/detail", "Delete a group.", delete_group, Done, (_GROUP, _CONFIRM), changes=True),
    ApiEndpoint(
        "POST", "/groups/reset", "Reset a group's offsets, or show the plan (dry run).", reset_offsets, ResetShown,
        body=ResetOrder, changes=True,
    ),
    ApiEndpoint("GET", "/nodes", "Nodes, and their Redis servers.", show_nodes, NodesShown),
    ApiEndpoint(
        "GET", "/nodes/configs", "A node's configs.", show_node_configs, NodeConfigs,
        (Param("node", "integer", "Id of the node."),),
    ),
    ApiEndpoint("GET", "/lake", "Tiered topics and their progress.", show_lake, LakeShown, (_SEARCH, _PAGE)),
    ApiEndpoint(
        "GET", "/streams", "Topics shared with Redis code, with their keys.", show_streams, StreamsShown,
        (_SEARCH, _PAGE),
    ),
    ApiEndpoint("GET", "/security", "Users, ACLs and quotas.", show_security, SecurityShown),
)  # fmt: skip
