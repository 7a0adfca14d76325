"""controller_mutation_rate: topics beyond it are refused or only throttled, by version (KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.access.quota import QuotaEntity, QuotaKey
from kafscale.admin.handlers import create_partitions, create_topics, delete_topics
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_partitions as partitions_schema
from kafscale.wire.schema import create_topics as create_schema
from kafscale.wire.schema import delete_topics as delete_schema

from services.admin.tests.harness import Admin, created

CLIENT = QuotaEntity(client_id="test")
"""That of the harness. A rate of 1 gives a bucket of 11 partitions."""
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
STRICT, PERMISSIVE = 7, 5


@pytest.fixture
def limited(admin: Admin) -> Admin:
    admin.access.quotas.put(CLIENT, QuotaKey.CONTROLLER_MUTATION_RATE, 1)
    return admin


async def create(
    admin: Admin,
    *topics: tuple[str, int],
    version: int = STRICT,
    principal: str | None = None,
    only: bool = False,
) -> tuple[list[int], int]:
    """Error codes and throttle time."""
    asked = [
        create_schema.CreateTopicsRequestTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name, partitions in topics
    ]
    request = create_schema.CreateTopicsRequest(topics=asked, validate_only=only)
    answer = await admin.ask(create_topics, create_schema, request, version, principal)
    return [result.error_code for result in answer.topics], answer.throttle_time_ms


async def extend(admin: Admin, name: str, count: int, version: int = 3) -> tuple[int, int]:
    topic = partitions_schema.CreatePartitionsRequestTopic(name=name, count=count, assignments=None)
    request = partitions_schema.CreatePartitionsRequest(topics=[topic])
    answer = await admin.ask(create_partitions, partitions_schema, request, version)
    return answer.results[0].error_code, answer.throttle_time_ms


async def delete(admin: Admin, name: str, version: int = 6) -> tuple[int, int]:
    request: Any = delete_schema.DeleteTopicsRequest(timeout_ms=0)
    if version >= 6:
        request.topics = [delete_schema.DeleteTopicsRequestTopicState(name=name)]
    else:
        request.topic_names = [name]
    answer = await admin.ask(delete_topics, delete_schema, request, version)
    return answer.responses[0].error_code, answer.throttle_time_ms


async def test_topics_beyond_the_rate_are_refused_until_the_bucket_is_filled(limited: Admin) -> None:
    assert await create(limited, ("a", 13)) == ([0], 0), "the last one may take more than there is"
    assert await create(limited, ("b", 1)) == ([EXCEEDED], 2_000)
    assert await limited.store.read("b") is None
    limited.clock.advance(1_999)
    assert await create(limited, ("b", 1)) == ([EXCEEDED], 1)
    limited.clock.advance(1)
    assert await create(limited, ("b", 1)) == ([0], 0)


async def test_an_older_version_is_throttled_and_everything_is_made(limited: Admin) -> None:
    assert await create(limited, ("a", 13), version=PERMISSIVE) == ([0], 2_000)
    assert await create(limited, ("b", 1), version=PERMISSIVE) == ([0], 3_000)
    assert await limited.store.read("b") is not None


async def test_of_one_request_some_topics_are_made(limited: Admin) -> None:
    codes, throttle_ms = await create(limited, ("a", 12), ("b", 1))
    assert (codes, throttle_ms) == ([0, EXCEEDED], 1_000)


async def test_new_partitions_and_deleted_ones_count_and_known_ones_do_not(limited: Admin) -> None:
    await created(limited, "t", 3)
    assert await extend(limited, "t", 15) == (0, 0)
    assert await extend(limited, "t", 16) == (EXCEEDED, 1_000)
    assert await extend(limited, "t", 16, version=2) == (0, 2_000)
    assert await delete(limited, "t") == (EXCEEDED, 2_000)
    assert await limited.store.read("t") is not None
    code, throttle_ms = await delete(limited, "t", version=4)
    assert (code, throttle_ms) == (0, 18_000)


async def test_what_fails_for_another_reason_costs_nothing(limited: Admin) -> None:
    assert await create(limited, ("a", 11)) == ([0], 0)
    for _ in range(3):
        assert await create(limited, ("a", 5)) == ([ErrorCode.TOPIC_ALREADY_EXISTS], 0)
        assert await create(limited, ("b", 0)) == ([ErrorCode.INVALID_PARTITIONS], 0)
        assert (await extend(limited, "a", 3))[0] == ErrorCode.INVALID_PARTITIONS
        assert (await delete(limited, "nothing"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await create(limited, ("b", 1)) == ([0], 0)


async def test_what_is_only_validated_counts_as_in_kafka(limited: Admin) -> None:
    assert await create(limited, ("a", 13), only=True) == ([0], 0)
    assert await create(limited, ("a", 1)) == ([EXCEEDED], 2_000)


async def test_clients_have_their_own_buckets_and_without_a_quota_none(admin: Admin) -> None:
    admin.access.quotas.put(QuotaEntity(user="alice"), QuotaKey.CONTROLLER_MUTATION_RATE, 1)
    assert await create(admin, ("a", 50), principal="User:alice") == ([0], 0)
    assert await create(admin, ("b", 50), principal="User:bob") == ([0], 0)
    assert await create(admin, ("c", 50), principal="User:bob") == ([0], 0)
    assert (await create(admin, ("d", 1), principal="User:alice"))[0] == [EXCEEDED]


async def test_a_bucket_that_is_full_is_not_lost_to_another_client(admin: Admin) -> None:
    """The table forgets full buckets; a request takes its bucket only when it takes tokens."""
    for name in ("alice", "bob"):
        admin.access.quotas.put(QuotaEntity(user=name), QuotaKey.CONTROLLER_MUTATION_RATE, 1)
    assert (await create(admin, ("a", 20), principal="User:alice"))[0] == [0]
    assert (await create(admin, ("b", 20), principal="User:bob"))[0] == [0]
    assert (await create(admin, ("c", 1), principal="User:alice"))[0] == [EXCEEDED]
    assert (await create(admin, ("c", 1), principal="User:bob"))[0] == [EXCEEDED]
