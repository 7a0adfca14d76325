"""An API that is not served is answered with UNSUPPORTED_VERSION, which an independent codec reads, or hung up on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from door_harness import Cluster, settled
from kafscale.frontdoor.apis import NotServed, not_served
from kafscale.wire.errors import ErrorCode
from kio.index import load_response_schema
from kio.serial import entity_reader

ABSENT = not_served(transactions=False)
CASES = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in ABSENT
    for version in range(api.versions[0], api.versions[1] + 1)
]


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster.running(transactions=False) as running:
        yield running


def has_error_of_the_whole(api: NotServed, version: int) -> bool:
    """As the independent definitions say."""
    return "error_code" in load_response_schema(int(api.key), version).__dataclass_fields__


@pytest.mark.parametrize(("api", "version"), CASES)
async def test_it_is_answered_if_the_answer_has_an_error_for_the_whole(
    cluster: Cluster, api: NotServed, version: int
) -> None:
    client = cluster.client()
    client.ask(int(api.key), version, b"\0" * 8)
    await settled()
    if not has_error_of_the_whole(api, version):
        assert client.hung_up
        return
    (answer,) = client.answers
    body = bytes(answer.body)
    read, size = entity_reader(load_response_schema(int(api.key), version))(body, 0)
    assert size == len(body)
    assert read.error_code == ErrorCode.UNSUPPORTED_VERSION
    message = getattr(read, "error_message", None)
    assert message is None or (api.name in message and api.why in message)
    assert message is not None or not hasattr(read, "error_message")
    assert not client.hung_up


@pytest.mark.parametrize("api", ABSENT, ids=lambda api: api.name)
async def test_a_version_that_kafka_does_not_know_ends_the_connection(
    cluster: Cluster, api: NotServed
) -> None:
    client = cluster.client()
    client.ask(int(api.key), api.versions[1] + 1, b"\0" * 8)
    await settled()
    assert client.hung_up
