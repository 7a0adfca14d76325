"""At debug level the front door logs each request once, however it ends; at other levels it does no work for it."""

from typing import Any

import structlog
from door_harness import Cluster, FakeClient, settled
from kafscale.frontdoor.api import Backend
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import metadata

API_VERSIONS = 18
METADATA, VERSION = 3, 9
BODY = b"".join(map(bytes, metadata.encode_request(metadata.MetadataRequest(topics=[]), VERSION)))


def told(logs: Any) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == "request"]


async def ask_and_answer(cluster: Cluster) -> FakeClient:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(METADATA, VERSION, BODY)
    cluster.stream(Backend.ADMIN, 1, "control").sent[0].reply(b"four")
    await settled()
    return client


async def test_a_request_is_told_with_its_ids_sizes_and_duration() -> None:
    async with Cluster.running(log_level="debug") as cluster:  # type: ignore[arg-type]
        with structlog.testing.capture_logs() as logs:
            client = await ask_and_answer(cluster)
    (line,) = told(logs)
    assert line["log_level"] == "debug"
    assert (line["api_key"], line["api"], line["api_version"]) == (METADATA, "Metadata", VERSION)
    assert line["correlation_id"] == client.answers[0].correlation_id
    assert line["connection_id"] == client.connection.caller.connection_id
    assert (line["outcome"], line["error"], line["response_bytes"]) == ("answered", None, 4)
    assert line["request_bytes"] > len(BODY)
    assert line["duration_ms"] >= 0
    assert {"client_id", "peer", "listener"} <= set(line)


async def test_one_that_nobody_waits_for_any_more_is_told_too() -> None:
    async with Cluster.running(log_level="debug") as cluster:  # type: ignore[arg-type]
        cluster.serve(Backend.ADMIN, 1)
        with structlog.testing.capture_logs() as logs:
            client = cluster.client()
            client.ask(METADATA, VERSION, BODY)
            client.leave()
            await settled()
    assert [line["outcome"] for line in told(logs)] == ["abandoned"]


async def test_an_error_of_ours_has_kafka_s_name() -> None:
    async with Cluster.running(log_level="debug") as cluster:  # type: ignore[arg-type]
        with structlog.testing.capture_logs() as logs:
            cluster.client().ask(API_VERSIONS, 99, b"")
            await settled()
    assert [line["error"] for line in told(logs)] == [ErrorCode.UNSUPPORTED_VERSION.name]


async def test_at_other_levels_nothing_is_made_of_it(cluster: Cluster) -> None:
    with structlog.testing.capture_logs() as logs:
        await ask_and_answer(cluster)
    assert told(logs) == []
