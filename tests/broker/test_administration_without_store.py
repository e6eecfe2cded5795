"""Administrative requests while Redis is away: each gets an error that clients retry, and works again afterwards."""

from __future__ import annotations

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.broker.administrator import SET, Administrator
from tests.broker.peers import connect
from tests.broker_process import wait_until
from tests.conftest import StartBroker, StartRedis

RETRIED = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT}


def delete(administrator: Administrator, topic: str) -> int:
    request = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=1_000)
    (result,) = administrator.connection.send_for(request, DeleteTopicsResponse, 6).responses
    return result.error_code


def log_dirs(administrator: Administrator) -> int:
    answer = administrator.connection.send_for(DescribeLogDirsRequest(None), DescribeLogDirsResponse, 5)
    return answer.results[0].error_code


def test_what_needs_the_store_is_to_be_retried(start_broker: StartBroker, start_redis: StartRedis) -> None:
    redis = start_redis()
    with connect(start_broker(redis=redis.url)) as connection:
        administrator = Administrator(connection)
        assert administrator.create("there").error_code == 0
        redis.stop()
        assert administrator.create("new").error_code in RETRIED
        assert administrator.add_partitions("there", 2)[0] in RETRIED
        assert administrator.alter("there", [("retention.ms", SET, "1")])[0] in RETRIED
        assert administrator.replace("there", {"retention.ms": "1"})[0] in RETRIED
        assert administrator.delete_records("there", 0, -1)[0] in RETRIED
        assert administrator.describe("unheard-of").error_code in RETRIED
        assert delete(administrator, "there") in RETRIED
        assert log_dirs(administrator) in RETRIED
        assert administrator.describe("there").error_code == 0
        redis.start()
        wait_until(lambda: log_dirs(administrator) == 0, "the broker does not come back")
        assert administrator.alter("there", [("retention.ms", SET, "2")]) == (0, None)
        assert administrator.own_configs("there") == {"retention.ms": "2"}
        assert delete(administrator, "there") == 0
