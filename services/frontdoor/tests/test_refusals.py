"""What the front door answers for a service that is lost, over all APIs and versions.

Law: no field of it is null where Apache Kafka's answer has a value. librdkafka copies a cluster id without a look, and
its process ends. e2e/scenarios/test_refusals.py compares the table below with Apache Kafka's own answers.
"""

from __future__ import annotations

import importlib
import pkgutil
import types
from typing import Final

import kafscale.wire.schema
import pytest
from kafscale.frontdoor.api import Api
from kafscale.frontdoor.apis import SERVED
from kafscale.testkit.requests import nulls, one_of_each
from kafscale.wire.errors import ErrorCode

KAFKAS: Final = {
    "Produce": {"responses.partition_responses.error_message"},
    "JoinGroup": {"protocol_name", "protocol_type"},
    "SyncGroup": {"protocol_name", "protocol_type"},
    "DeleteTopics": {"responses.name"},  # of a topic that is named by its id
    "DescribeClientQuotas": {"entries"},
    "ConsumerGroupHeartbeat": {"assignment", "member_id"},
    "DescribeTopicPartitions": {"next_cursor"},
}
ABSENT: Final = {
    # in these versions the answer has no such field
    "Metadata": ({"cluster_id"}, range(2)),
    "DescribeGroups": ({"groups.error_message"}, range(6)),
    "DeleteTopics": ({"responses.error_message"}, range(5)),
}


def codecs() -> dict[int, types.ModuleType]:
    modules = pkgutil.iter_modules(kafscale.wire.schema.__path__)
    found = [importlib.import_module(f"kafscale.wire.schema.{each.name}") for each in modules]
    return {codec.API_KEY: codec for codec in found if hasattr(codec, "API_KEY")}


CODECS: Final = codecs()


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_a_refusal_has_no_null_where_kafka_has_a_value(api: Api, code: ErrorCode) -> None:
    codec = CODECS[api.key]
    for version in range(api.versions[0], api.versions[1] + 1):
        body = b"".join(map(bytes, codec.encode_request(one_of_each(codec), version)))
        answer = b"".join(map(bytes, api.refuse(memoryview(body), version, code)))
        fields, versions = ABSENT.get(api.name, (set(), range(0)))
        allowed = KAFKAS.get(api.name, set()) | (fields if version in versions else set())
        assert set(nulls(codec.decode_response(answer, version))) <= allowed, version
