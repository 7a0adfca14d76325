"""A client that asks for step times has them in the header of its answer, if it may describe the cluster."""

from __future__ import annotations

import json
from struct import pack

import pytest
from door_harness import Cluster, FakeClient, settled
from kafscale.access.authorizer import Authorizer
from kafscale.frontdoor.api import Backend
from kafscale.runtime.steps import TIMED, StepSpan
from kafscale.testkit.acls import ALICE, allowing, authorizer
from kafscale.wire.headers import encode_request_header, step_times_in
from kafscale.wire.schema import metadata

VERSION = 9


def ask(client: FakeClient, version: int = VERSION, *, timed: bool = True) -> None:
    header = encode_request_header(metadata.API_KEY, version, 1, "test", asks_step_times=timed)
    message = metadata.MetadataRequest(topics=[])
    whole = header + b"".join(map(bytes, metadata.encode_request(message, version)))
    client.versions[1] = (metadata.API_KEY, version)
    client.feed(pack(">i", len(whole)) + whole)


def steps(client: FakeClient, version: int = VERSION) -> list[object] | None:
    found = step_times_in(bytes(client.transport.out)[4:], metadata.API_KEY, version)
    return None if found is None else json.loads(found)["steps"]


async def answered(cluster: Cluster, client: FakeClient, report: bytes = b"") -> str | None:
    """The traceparent of what the service was asked, once the client has its answer."""
    (sent,) = cluster.stream(Backend.ADMIN, 1, "control").sent
    sent.reply(b"answer", report=report)
    await settled()
    assert [answer.body for answer in client.answers] == [b"answer"]
    return sent.meta.traceparent


async def test_the_answer_has_the_steps_of_the_front_door_and_of_the_service(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    ask(client)
    traceparent = await answered(cluster, client, StepSpan("request").report())
    assert traceparent is not None
    assert traceparent.endswith(TIMED)
    found = steps(client)
    assert found is not None
    assert [each[0] if isinstance(each, list) else each["steps"][0][0] for each in found] == [  # type: ignore[index]
        "request begun",
        "ask admin begun",
        "ask admin ended",
        "request begun",
        "request ended",
    ]


@pytest.mark.parametrize("version", [VERSION - 1, VERSION])
async def test_an_answer_without_a_question_has_no_steps(cluster: Cluster, version: int) -> None:
    """A version without tagged fields can neither ask nor answer."""
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    ask(client, version, timed=version < VERSION)
    assert await answered(cluster, client) is None
    assert steps(client, version) is None


@pytest.mark.parametrize(
    ("rules", "shown"), [(authorizer(), False), (allowing("CLUSTER kafka-cluster DESCRIBE"), True)]
)
async def test_a_client_that_may_not_describe_the_cluster_sees_no_steps(
    rules: Authorizer, shown: bool
) -> None:
    async with Cluster.running(rules) as cluster:
        cluster.serve(Backend.ADMIN, 1)
        client = cluster.client(ALICE)
        ask(client)
        await answered(cluster, client)
        assert (steps(client) is not None) is shown
